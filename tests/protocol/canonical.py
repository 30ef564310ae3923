"""States that differ only in names become one state.

Lease numbers, cut numbers, request numbers and manifest ids are compared for equality or order and mean nothing else,
so the ones in use are counted anew after each step, in their old order.  What is for people alone (texts, counters of
the status) is blanked.  A push that can never have an effect again is dropped, and so is a manifest that can never be
adopted, and a deposed master that nobody hears and that writes nothing any more.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Final

from master.api.identities import CutId, DatasetSpec, Incarnation, LeaseToken, TableSpec, Term
from master.api.manifest import Manifest
from master.api.messages import Ended, Granted, Wait
from master.api.positions import PositionSet
from master.job.dispatch import NO_REQUEST
from master.job.domain import Instant, JobConfig
from master.job.frozen_map import FrozenMap
from tests.protocol.interning import Interned, Remembered
from tests.protocol.masters import NOW, MasterProcess
from tests.protocol.world import Cast, Draft, Parcel, ServerSlot, TrainerSlot, World
from trainer_sdk.pserver.messages import CopyHead, Target
from trainer_sdk.pserver.state import Phase, ServerState

_MANIFEST: Final = re.compile(r"\d{6}-\d{10}-\d{6}|m\d+")
_LEAVES: Final = (int, float, bool, type(None), PositionSet, DatasetSpec, TableSpec, JobConfig)

Numbered = tuple[Term, int]


@dataclass(frozen=True, slots=True)
class Names:
    """What is named in a value."""

    leases: frozenset[Numbered] = frozenset()
    cuts: frozenset[Numbered] = frozenset()
    manifests: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.leases | other.leases, self.cuts | other.cuts, self.manifests | other.manifests)


@dataclass(frozen=True, slots=True)
class Renaming:
    """Old name to new name, for those that change, in a form that hashes."""

    leases: tuple[tuple[Numbered, int], ...] = ()
    cuts: tuple[tuple[Numbered, int], ...] = ()
    manifests: tuple[tuple[str, str], ...] = ()
    requests: tuple[tuple[Incarnation, int], ...] = ()  # of living trainers: their newest request


@cache
def _names_of_parts(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


@cache
def _reader_of_parts(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    names = _names_of_parts(kind)
    return operator.attrgetter(*names) if len(names) > 1 else lambda one: tuple(getattr(one, name) for name in names)


def _parts(one: Any) -> tuple[Any, ...]:
    return _reader_of_parts(type(one))(one)


def names_in(value: Any) -> Names:
    leases: set[Numbered] = set()
    cuts: set[Numbered] = set()
    manifests: set[str] = set()
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, _LEAVES):
            continue
        if isinstance(one, str):
            if _MANIFEST.fullmatch(one):
                manifests.add(one)
        elif isinstance(one, LeaseToken):
            leases.add((one.term, one.number))
        elif isinstance(one, CutId):
            cuts.add((one.term, one.sequence))
        elif is_dataclass(one):
            rest += _parts(one)
        elif isinstance(one, Mapping):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, Iterable):
            rest += one
        else:
            raise TypeError(f"{type(one)} in a state")
    return Names(frozenset(leases), frozenset(cuts), frozenset(manifests))


class Renamer:
    """Applies a renaming to a value of any make."""

    def __init__(self, renaming: Renaming) -> None:
        self.leases, self.cuts = dict(renaming.leases), dict(renaming.cuts)
        self.manifests = dict(renaming.manifests)

    def __call__(self, one: Any) -> Any:
        if isinstance(one, _LEAVES):
            return one
        if isinstance(one, str):
            return self.manifests.get(one, one)
        if isinstance(one, LeaseToken):
            return replace(one, number=self.leases.get((one.term, one.number), one.number))
        if isinstance(one, CutId):
            return replace(one, sequence=self.cuts.get((one.term, one.sequence), one.sequence))
        if is_dataclass(one):
            found = _parts(one)
            new = [self(value) for value in found]
            if all(map(operator.is_, found, new)):
                return one
            return type(one)(**dict(zip(_names_of_parts(type(one)), new, strict=True)))
        if isinstance(one, FrozenMap):
            return FrozenMap({self(key): self(value) for key, value in one.items()})
        if isinstance(one, tuple):
            new_items = tuple(self(item) for item in one)
            return one if all(a is b for a, b in zip(one, new_items, strict=True)) else new_items
        if isinstance(one, frozenset):
            return frozenset(self(item) for item in one)
        raise TypeError(f"{type(one)} in a state")


def renamed(value: Any, renaming: Renaming) -> Any:
    """The value under its new names; itself when all its names stay."""
    names = names_in(value)
    stays = (
        all(new == old[1] for old, new in renaming.leases if old in names.leases)
        and all(new == old[1] for old, new in renaming.cuts if old in names.cuts)
        and all(new == old for old, new in renaming.manifests if old in names.manifests)
    )
    return value if stays else Renamer(renaming)(value)


# ---- one component -----------------------------------------------------------------------------------------------


def renamed_master(process: MasterProcess, renaming: Renaming) -> MasterProcess:
    """Counters go on after the last number in use."""
    process = renamed(process, renaming)
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
        moves=replace(state.moves, late=0, missed=FrozenMap()),
    )
    return replace(process, state=state)


def renamed_trainer(slot: TrainerSlot, renaming: Renaming) -> TrainerSlot:
    slot = renamed(slot, renaming)
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


# ---- the world ---------------------------------------------------------------------------------------------------


class Canon:
    """Makes the one representative of a draft."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self._sets: Interned[Names] = Interned()
        self._renamings: Interned[Renaming] = Interned()
        tables = (cast.masters, cast.etcds, cast.storages, cast.servers, cast.trainers)
        self._names = [Remembered(lambda n, table=table: self._sets.number(names_in(table[n]))) for table in tables]
        self._requests = Remembered(self._request_of)
        self._renaming_of = Remembered(self._renaming)
        self._master = self._renamed_by(cast.masters, renamed_master)
        self._trainer = self._renamed_by(cast.trainers, renamed_trainer)
        self._server = self._renamed_by(cast.servers, renamed)
        self._etcd = self._renamed_by(cast.etcds, renamed)
        self._storage = self._renamed_by(cast.storages, lambda storage, r: self._sorted(renamed(storage, r)))

    def of(self, draft: Draft) -> World:
        self._drop_dead(draft)
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
        )

    def _renamed_by(self, table: Interned[Any], rename: Callable[[Any, Renaming], Any]) -> Remembered[int]:
        return Remembered(lambda number, by: table.number(rename(table[number], self._renamings[by])))

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

    def _sorted(self, storage: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
        return tuple(sorted(storage, key=lambda manifest: _age_of_manifest(manifest.id)))

    # ---- what can never matter again ----------------------------------------------------------------------------

    def _drop_dead(self, draft: Draft) -> None:
        self._drop_masters(draft)
        self._drop_manifests(draft)
        self._drop_parcels(draft)
        self._drop_copies(draft)
        self._forget_cuts(draft)

    def _drop_masters(self, draft: Draft) -> None:
        """A deposed master that no member hears and that has no manifest to write."""
        heard = {draft.server(s).link for s in range(len(draft.servers))}
        heard |= {draft.trainer(t).link for t in range(len(draft.trainers))}
        draft.zombies = [
            z for z in draft.zombies if self.cast.masters[z].manifests or self.cast.masters[z].state.term in heard
        ]

    def _drop_manifests(self, draft: Draft) -> None:
        """Orphans for ever: of another parent than head, or of another lineage (rule 24)."""
        durable = draft.durable().durable
        head = durable.head.id if durable.head else None
        number = durable.lineage.number if durable.lineage else None
        storage = self.cast.storages[draft.storage]
        kept = (
            storage
            if self.cast.setting.keeps_orphans
            else tuple(m for m in storage if m.parent == head and m.lineage == number)
        )
        if kept != storage:
            draft.storage = self.cast.storages.number(kept)
        if durable.head is not None and durable.head.parent is not None:  # nobody asks head for its parent
            etcd = draft.durable()
            durable = replace(durable, head=replace(durable.head, parent=None))
            draft.etcd = self.cast.etcds.number(replace(etcd, durable=durable))

    def _drop_parcels(self, draft: Draft) -> None:
        for number in tuple(draft.net):
            parcel = self.cast.parcels[number]
            if parcel.sender is not None and not self._is_awaited(draft, parcel):
                draft.net.discard(number)
                parcel = replace(parcel, sender=None)
                draft.net.add(self.cast.parcels.number(parcel))
            if parcel.sender is None and self._is_dead(draft.server(parcel.server), parcel):
                draft.net.discard(self.cast.parcels.number(parcel))

    def _is_awaited(self, draft: Draft, parcel: Parcel) -> bool:
        assert parcel.sender is not None
        process = draft.trainer(parcel.sender).process
        return process is not None and draft.gradient_of(process, parcel) is not None

    def _is_dead(self, slot: ServerSlot, parcel: Parcel) -> bool:
        """Whenever it arrives it will be refused: the lineage has gone on, or some of it is marked already."""
        if not self.cast.setting.is_pruned:
            return False
        state, push = slot.process.state, parcel.push
        if max(state.lineage, state.taken) > push.lineage:
            return True
        if state.lineage == push.lineage and all(is_past(state, target) for target in push.targets):
            return True
        touched = [g for g in state.groups if any(g.buckets & target.buckets for target in push.targets)]
        return (
            state.lineage == push.lineage
            and bool(touched)
            and all(push.positions & (g.applied | g.skipped) for g in touched)
        )

    def _drop_copies(self, draft: Draft) -> None:
        """For a process that is over, or refused whenever it arrives."""
        for number in tuple(draft.copies):
            head = self.cast.shipments[number].head
            process = draft.server(int(head.target[1:].split(".")[0])).process
            step = self.cast.copy_step(process, self.cast.shipments[number])
            is_early = max(process.state.lineage, process.state.taken) < head.lineage
            is_awaited = bool(step.told) and self._is_to_come(draft, head)
            is_taken = step.process != process or step.asked_full is not None or is_awaited
            is_of_use = not self.cast.setting.is_pruned or is_early or is_taken
            if process.state.incarnation != head.target or not is_of_use:
                draft.copies.discard(number)

    def _is_to_come(self, draft: Draft, head: CopyHead) -> bool:
        """Its INSTALLED may still be of use."""
        ends = ((i.bucket, i.version + 1, i.target.incarnation) for i in draft.durable().durable.intents)
        return (head.bucket, head.version, head.target) in ends

    def _forget_cuts(self, draft: Draft) -> None:
        """A cut that is over is remembered to refuse it again; when nobody can name it any more, it is forgotten."""
        if draft.zombies:
            return
        current = self.cast.masters[draft.leader].state.commit.cut
        for server in range(len(draft.servers)):
            slot = draft.server(server)
            known = slot.process.state.cut
            if known is None or known.phase not in (Phase.GONE, Phase.WRITTEN) or known.cut == current:
                continue
            if any(getattr(message, "cut", None) is not None and message.cut <= known.cut for message in slot.inbox):
                continue
            state = replace(slot.process.state, cut=None)
            draft.put_server(server, replace(slot, process=replace(slot.process, state=state)))


def is_past(state: ServerState, target: Target) -> bool:
    """No bucket of it is live here at that version, nor can ever be again."""
    live = {bucket for group in state.groups if group.version == target.version for bucket in group.buckets}
    return all(b not in live and state.moving.floor(b) > target.version for b in target.buckets)
