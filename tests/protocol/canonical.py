"""States that differ only in names become one state.

Lease numbers, cut numbers, request numbers and manifest ids are compared for equality or order and mean nothing else,
so the ones in use are counted anew after each step, in their old order.  What is for people alone (texts, counters of
the status) is blanked.  What can have no effect any more is dropped before (`dead`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from master.api.checkpoints.manifest import Manifest
from master.api.identities import Incarnation, Term
from master.api.messages.to_members import Ended, Granted, Wait
from master.job.domain.durable_records import Instant
from master.job.domain.frozen_map import FrozenMap
from master.job.state.dispatch_state import NO_REQUEST
from tests.protocol.dead import drop_dead
from tests.protocol.draft import Draft
from tests.protocol.interning import Interned, Remembered
from tests.protocol.masters import NOW, MasterProcess
from tests.protocol.names import Names, Numbered, Renaming, names_in, renamed
from tests.protocol.world import Cast, TrainerSlot, World


def renamed_master(process: MasterProcess, renaming: Renaming, names: Names) -> MasterProcess:
    """Counters go on after the last number in use."""
    process = renamed(process, renaming, names)
    state = process.state
    books, commit = state.dispatch, state.commit
    requests = dict(renaming.requests)
    live = {lease.token.number for holder in books.holders.values() for lease in holder.leases}
    holders = {
        key: replace(
            holder,
            request=1 if holder.request == requests.get(key) else NO_REQUEST,
            granted=tuple(number for number in holder.granted if number in live)
            if holder.request == requests.get(key)
            else (),
        )
        for key, holder in books.holders.items()
    }
    leases = [number for (term, number), _ in renaming.leases if term == state.term]
    cuts = [number for (term, number), _ in renaming.cuts if term == state.term]
    books = replace(books, holders=FrozenMap(holders), next_number=len(leases) + 1, reworked=0)
    commit = replace(
        commit,
        sequence=len(cuts),
        due=None if commit.due is None else Instant(NOW + 1),
        refusals=min(commit.refusals, 1),
        committed_at=None,
        problem="",
    )
    state = replace(
        state,
        dispatch=books,
        commit=commit,
        failures=replace(state.failures, notes=(), in_a_row=0),
        recovery=replace(state.recovery, problem=""),
        scale=replace(state.scale, replaced=""),
        moves=replace(state.moves, late=0, timed_out=FrozenMap()),
    )
    return replace(process, state=state)


def renamed_trainer(slot: TrainerSlot, renaming: Renaming, names: Names) -> TrainerSlot:
    slot = renamed(slot, renaming, names)
    process = slot.process
    if process is None or process.state.request <= 1:
        return slot
    newest = process.state.request
    inbox = tuple(
        replace(message, request=int(message.request == newest))
        if isinstance(message, Granted | Wait | Ended)
        else message
        for message in slot.inbox
    )
    waits_for = 1 if process.waits_for == newest else None
    return replace(
        slot,
        inbox=inbox,
        process=replace(process, state=replace(process.state, request=1), waits_for=waits_for),
    )


def renamed_storage(storage: tuple[Manifest, ...], renaming: Renaming, names: Names) -> tuple[Manifest, ...]:
    """In the order of their making."""
    manifests: tuple[Manifest, ...] = renamed(storage, renaming, names)
    return tuple(sorted(manifests, key=lambda manifest: _age_of_manifest(manifest.id)))


def _ranked(used: Iterable[Numbered]) -> tuple[tuple[Numbered, int], ...]:
    """Each term's numbers, counted from 1 in their order."""
    count: dict[Term, int] = {}
    ranked = []
    for term, number in sorted(used):
        count[term] = count.get(term, 0) + 1
        ranked.append(((term, number), count[term]))
    return tuple(ranked)


def _age_of_manifest(name: str) -> tuple[bool, int, str]:
    """Names that were given here come before new ones; both are in the order of their making."""
    return (not name.startswith("m"), int(name[1:]) if name.startswith("m") else 0, name)


class Canon:
    """Makes the one representative of a draft."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self._sets: Interned[Names] = Interned()
        self._renamings: Interned[Renaming] = Interned()
        tables = (cast.masters, cast.etcds, cast.storages, cast.servers, cast.trainers)
        renamers = (renamed_master, renamed, renamed_storage, renamed, renamed_trainer)
        self._names = [Remembered(lambda n, table=table: self._sets.number(names_in(table[n]))) for table in tables]
        self._requests = Remembered(self._request_of)
        self._renaming_of = Remembered(self._renaming)
        self._master, self._etcd, self._storage, self._server, self._trainer = map(
            self._renamed_by, tables, renamers, self._names
        )

    def of(self, draft: Draft) -> World:
        drop_dead(draft)
        world = draft.world()
        renaming = self._renaming_in(world)
        return World(
            self._master(world.leader, renaming),
            tuple(sorted(self._master(z, renaming) for z in world.zombies)),
            self._etcd(world.etcd, renaming),
            self._storage(world.storage, renaming),
            tuple(self._server(s, renaming) for s in world.servers),
            tuple(self._trainer(t, renaming) for t in world.trainers),
            world.net,
            world.faults,
            world.copies,
            world.answered,
            world.wish,
            world.relays,
        )

    def _renamed_by(
        self, table: Interned[Any], rename: Callable[[Any, Renaming, Names], Any], names: Remembered[int]
    ) -> Remembered[int]:
        def renamed_number(number: int, by: int) -> int:
            return table.number(rename(table[number], self._renamings[by], self._sets[names(number)]))

        return Remembered(renamed_number)

    def _renaming_in(self, world: World) -> int:
        masters, etcds, storages, servers, trainers = self._names
        return self._renaming_of(
            masters(world.leader),
            *map(masters, world.zombies),
            etcds(world.etcd),
            storages(world.storage),
            *map(servers, world.servers),
            *map(trainers, world.trainers),
            *map(self._requests, world.trainers),
        )

    def _renaming(self, *parts: int | tuple[Incarnation, int] | None) -> int:
        """The number of the renaming of all names in these sets (by number), with these newest requests."""
        names = Names()
        for part in parts:
            if isinstance(part, int):
                names = names | self._sets[part]
        manifests = sorted(names.manifests, key=_age_of_manifest)
        return self._renamings.number(
            Renaming(
                leases=_ranked(names.leases),
                cuts=_ranked(names.cuts),
                manifests=tuple((name, f"m{age}") for age, name in enumerate(manifests, 1)),
                requests=tuple(part for part in parts if isinstance(part, tuple)),
            )
        )

    def _request_of(self, trainer: int) -> tuple[Incarnation, int] | None:
        process = self.cast.trainers[trainer].process
        return (process.state.incarnation, process.state.request) if process else None
