"""Pushes on their way from an owner to the backup, and the answers on their way back (rules 61, 62).

An owner may pass the same push on again and again; what is on its way may be lost, come late, and outlive both ends.
Not here: what the owner does with an answer (`pushes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from master.api.positions import union
from tests.protocol.draft import Draft
from tests.protocol.servers import ServerProcess
from tests.protocol.steps.change import Change, Label
from tests.protocol.world import Cast, Parcel, Relay, World
from trainer_sdk.pserver.core import messages, pushes

Said: TypeAlias = tuple[messages.BackupAnswer, ...]

WAITING = frozenset({messages.PushVerdict.HELD, messages.PushVerdict.NOT_READY})
"""A push so answered comes again as it is."""

ELSEWHERE = frozenset({messages.PushVerdict.MOVED, messages.PushVerdict.FROZEN, messages.PushVerdict.NOT_YET})
"""A push so answered comes again by a newer route (rule 50)."""


def said(
    cast: Cast, world: World, process: ServerProcess, parcel: Parcel, passes: tuple[messages.BackupPush, ...]
) -> Said | None:
    """What the backups have answered to this push; None: one of them has not."""
    relays = list(_of(cast, world, process, parcel))
    found: list[messages.BackupAnswer] = []
    for one in passes:
        answers = [relay.said for relay in relays if relay.one == one and relay.said]
        if not answers:
            return None
        found += answers[0]
    return tuple(found)


def passed_on(
    cast: Cast, world: World, process: ServerProcess, parcel: Parcel, passes: tuple[messages.BackupPush, ...]
) -> Iterator[Change]:
    """To each backup to which it is not on its way."""
    known = {relay.one for relay in _of(cast, world, process, parcel)}
    for one in passes:
        if one not in known:
            addressed = union(target.buckets for target in one.targets)
            relay = Relay(
                owner=process.state.incarnation,
                one=one,
                lineage=parcel.push.lineage,
                positions=parcel.push.positions,
                computed_on=tuple(pair for pair in parcel.computed_on if pair[0] in addressed),
            )
            label = Label("s{} passes {} on to {}", (parcel.server, list(relay.positions), one.to.incarnation))
            yield Change(label, lambda d, relay=relay: d.relays.add(cast.relays.number(relay)))


def of_relays(cast: Cast, world: World) -> Iterator[Change]:
    for number in world.relays:
        relay = cast.relays[number]
        what = (relay.one.to.incarnation, list(relay.positions))
        lost = Label("what {} is to get or has said of {} is LOST", what)
        yield Change(lost, lambda d, n=number: d.relays.discard(n), "loss")
        process = cast.servers[world.servers[relay.one.to.ordinal]].process
        if relay.said or process.state.incarnation != relay.one.to.incarnation:
            continue
        step = cast.pass_step(process, relay.push, relay.computed_on)
        assert step.answer is not None
        verdicts = {ruling.verdict for ruling in step.answer.rulings}
        if not verdicts <= WAITING | ELSEWHERE:
            label = Label("backup {} gets {}: {}", (*what, ", ".join(sorted(verdicts))))
            yield Change(label, lambda d, n=number, relay=relay: _arrives(d, n, relay))


def _of(cast: Cast, world: World, process: ServerProcess, parcel: Parcel) -> Iterator[Relay]:
    """This push, passed on by this owner."""
    for number in world.relays:
        relay = cast.relays[number]
        same = (relay.owner, relay.lineage, relay.positions)
        if same == (process.state.incarnation, parcel.push.lineage, parcel.push.positions):
            yield relay


def _arrives(draft: Draft, number: int, relay: Relay) -> None:
    backup = relay.one.to.ordinal
    step = draft.cast.pass_step(draft.server(backup).process, relay.push, relay.computed_on)
    assert step.answer is not None
    draft.server_stepped(backup, step)
    draft.relays.discard(number)
    answer = pushes.parse_backup_answer(relay.one, step.answer)
    draft.relays.add(draft.cast.relays.number(replace(relay, said=answer)))
