"""Left out of what masters do with the table: intent, flip, undo, roll-back (rules 37 to 49, 53 to 56)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.messages.to_members import Activate, Forget
from master.api.positions import PositionSet
from master.job import machine
from master.job.domain.durable_records import BucketTable, RaiseLineage
from master.job.domain.job_events import MovesExpired
from master.job.moves import move_admission, move_lifecycle, move_timeouts
from master.job.recovery import server_quorum, server_restore
from master.job.state import bucket_table
from master.job.state.job_state import Turn
from master.job.state.protocol_state import BucketMoves
from tests.protocol import masters
from tests.protocol.breaks.left_out import LATE, MOVE, ONE, Break, always, on_installed
from tests.protocol.explore import Limits
from tests.protocol.settings import Faults, Setting
from trainer_sdk.pserver.core import bucket_moves
from trainer_sdk.pserver.core.server_state import ServerState, merge_groups

_activated = bucket_moves._activated
_undone = bucket_table.undone
_installed = move_lifecycle.handle_installed
_handle_raised = server_restore.handle_raised
_try_write = masters.try_write
_flipped = bucket_table.flipped


def same_version_thaws(state: ServerState, number: Any, order: Any) -> Any:
    groups = merge_groups(
        replace(group, is_frozen=False) if number in group.buckets and group.version == order.version else group
        for group in state.groups
    )
    return _activated(replace(state, groups=groups), number, order)


def every_owner_comes_back(state: Any) -> bool:
    here = set(state.members.servers)
    owning = {state.route.servers[place].ordinal for place in state.route.owner} if state.route else set()
    return bool(here) and here >= (owning or set(range(state.scale.target)))


def undone_at_the_same_version(now: BucketTable, intent: Any) -> BucketTable:
    after = _undone(now, intent)
    return replace(after, route=replace(after.route, version=now.route.version))


def flipped_at_the_same_version(now: BucketTable, intent: Any, **stays: bool) -> BucketTable:
    after = _flipped(now, intent, **stays)
    return replace(after, route=replace(after.route, version=now.route.version))


def forgotten_once_installed(turn: Turn, server: Any, said: Any) -> None:
    _installed(turn, server, said)
    for intent in turn.state.moves.intents:
        if intent.bucket == said.bucket:
            order = Forget(lineage=said.lineage, buckets=PositionSet.of(said.bucket), version=said.version)
            turn.send(intent.source, order)


def activated_once_installed(turn: Turn, server: Any, said: Any) -> None:
    _installed(turn, server, said)
    order = Activate(
        lineage=said.lineage, buckets=PositionSet.of(said.bucket), version=said.version, since=said.version
    )
    turn.send(server.key, order)


def installed_of_any_version(turn: Turn, server: Any, said: Any) -> None:
    for intent in turn.state.moves.intents:
        if intent.bucket == said.bucket:
            said = replace(said, version=intent.version + 1)
    _installed(turn, server, said)


def flipped_when_late(turn: Turn, event: Any) -> None:
    late = frozenset(intent.bucket for intent in turn.state.moves.intents)
    if move_timeouts.expires_at(turn.state) == event.deadline:
        turn.change(moves=replace(turn.state.moves, installed=late))


def intents_survive(turn: Turn, write: Any) -> None:
    kept = turn.state.moves.intents
    _handle_raised(turn, write)
    turn.change(moves=BucketMoves(intents=kept))


def intents_stay_in_the_store(etcd: Any, term: Any, write: Any, storage: Any) -> Any:
    after = _try_write(etcd, term, write, storage)
    if after is None or not isinstance(write, RaiseLineage):
        return after
    return replace(after, durable=replace(after.durable, intents=etcd.durable.intents))


BREAKS: Final = (
    Break(
        name="undo-keeps-version",
        rule="38, 46: every end of a move raises the version",
        patches=(
            (bucket_table, "undone", undone_at_the_same_version),
            (bucket_moves, "_activated", same_version_thaws),
        ),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=1)),
    ),
    Break(
        name="forget-early",
        rule="48: FORGET only after the table has changed",
        patches=(on_installed(forgotten_once_installed),),
        setting=LATE,
    ),
    Break(
        name="intent-before-active",
        rule="41: only when the source has reported itself live at that version",
        patches=((move_admission, "_is_settled", always),),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=2)),
    ),
    Break(
        name="intent-survives-rollback",
        rule="56: a roll-back deletes all intents",
        patches=((server_restore, "handle_raised", intents_survive), (masters, "try_write", intents_stay_in_the_store)),
        setting=Setting(**ONE, faults=Faults(move=1, server_crash=1)),
    ),
    Break(
        name="owner-by-name",
        rule="37, 54: another process at the same name is not the owner",
        patches=((move_lifecycle, "is_safe", always),),
        setting=Setting(**ONE, faults=Faults(server_crash=1, move=1)),
        limits=Limits(states=18_000),
    ),
    Break(
        name="evict-keeps-lineage",
        rule="53: a source that does not confirm: UNDO, never FLIP",
        patches=((machine, "HANDLERS", {**machine.HANDLERS, MovesExpired: flipped_when_late}),),
        setting=LATE,
    ),
    Break(
        name="installed-any-version",
        rule="44, 45: INSTALLED of this very move",
        patches=(on_installed(installed_of_any_version),),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=1)),
    ),
    Break(
        name="told-before-durable",
        rule="45, 47: ACTIVATE is derived from the table",
        patches=(on_installed(activated_once_installed),),
        setting=LATE,
    ),
    Break(
        name="flip-keeps-version",
        rule="38: a finished move raises the version",
        patches=((bucket_table, "flipped", flipped_at_the_same_version),),
        setting=MOVE,
    ),
    Break(
        name="unwanted-is-waited-for",
        rule="49: after a loss nobody waits for a server that is not wanted (ADR 0315)",
        patches=((server_quorum, "has_quorum", every_owner_comes_back),),
        setting=Setting(trainers=1, positions=1, faults=Faults(wish=1, server_crash=1)),
        limits=Limits(states=12_000),
    ),
)
