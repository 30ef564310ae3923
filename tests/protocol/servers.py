"""A parameter server in the checker's world: the real core, and around it a shell whose parameters are ledgers.

What the real shell does over time happens here at once: loading a model takes no step of its own (a crash while loading
is a crash just before RESTORE arrives), unless the setting says so (`to_load`), for what is kept meanwhile.  Writing a
file does take one: `file_to_write` says that a fork waits for it.
Copies of buckets that go to other servers are shipments: they are on their way until somebody takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from master.api.identities import NO_LINEAGE, BucketId, Incarnation, Lineage, MemberName, ServerPlace
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import ServerMessage
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, PositionSet
from tests.protocol import ledger
from tests.protocol.interning import hashed_once
from tests.protocol.ledger import Ledger, Ledgers
from trainer_sdk.pserver.core import event_table, pushes
from trainer_sdk.pserver.core.messages import BackupAnswer, BackupPush, CopyHead, Push, PushAnswer
from trainer_sdk.pserver.core.pushes import PushOutcome
from trainer_sdk.pserver.core.server_events import (
    ApplyBoth,
    ApplyLive,
    CopyArrived,
    DropFork,
    DropLive,
    DropStaged,
    FileWritten,
    FullCopyRequested,
    LoadModel,
    ModelLoaded,
    NotifyMaster,
    OpenFork,
    PushEffect,
    RequestFullCopy,
    SendCopy,
    ServerEffect,
    ServerEvent,
    ServeStaged,
    StageCopy,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import ServerState

NOW_S = 0.0

Model: TypeAlias = tuple[Lineage, Incarnation]
"""What a bucket's parameters really are: restored for this lineage by this process, whatever anybody calls them."""

Pulled: TypeAlias = tuple[Lineage, Model]
"""What a server says of the parameters of a bucket that it gives, and what they are."""

Origins: TypeAlias = tuple[tuple[BucketId, Model], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """A copy of a bucket on its way between servers.  `base`: the ledger that a difference was made on."""

    head: CopyHead
    source: Incarnation
    ledger: Ledger
    origin: Model
    base: Ledger = ()


@dataclass(frozen=True, kw_only=True)
class ServerProcess:
    """One process.  Ledgers are there while it holds a model or keeps some of one, the fork's while there is one."""

    state: ServerState
    live: Ledgers = ()
    origins: Origins = ()
    fork: Ledgers = ()
    file_to_write: WriteFork | None = None
    to_load: LoadModel | None = None
    staged: tuple[tuple[BucketId, Ledger, Model], ...] = ()
    warmed: tuple[tuple[BucketId, Incarnation, Ledger], ...] = ()  # what was sent ahead, to whom
    __hash__ = hashed_once

    def pulled(self, bucket: int) -> Pulled | None:
        """What a pull of this bucket gets; None: it is not here, or no model is."""
        if self.state.lineage == NO_LINEAGE or not self.state.has(PositionSet.of(bucket)):
            return None
        return self.state.lineage, dict(self.origins)[BucketId(bucket)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStep:
    process: ServerProcess
    told: tuple[ServerMessage, ...] = ()
    answer: PushAnswer | None = None
    violation: str | None = None
    shipped: tuple[Shipment, ...] = ()
    asked_full: CopyHead | None = None
    passes: tuple[BackupPush, ...] = ()


def started(incarnation: Incarnation) -> ServerProcess:
    return ServerProcess(state=ServerState(incarnation=incarnation))


def pushed(
    process: ServerProcess, push: Push, computed_on: Origins, said: tuple[BackupAnswer, ...] | None = None
) -> ServerStep:
    """A push arrives.  `computed_on`: the parameters of its buckets that the gradient was really computed on (I3)."""
    return _applied(process, pushes.handle_push(process.state, push, said), push, computed_on)


def passed(process: ServerProcess, push: Push, computed_on: Origins) -> ServerStep:
    """A push that the owner passes on arrives at the backup."""
    return _applied(process, pushes.handle_backup_push(process.state, push), push, computed_on)


def _applied(process: ServerProcess, step: PushOutcome, push: Push, computed_on: Origins) -> ServerStep:
    after = replace(process, state=step.state)
    violation = None
    for effect in step.effects:
        if isinstance(effect, ApplyLive | ApplyBoth):
            mine, its = (tuple(x for x in some if x[0] in effect.buckets) for some in (process.origins, computed_on))
            if mine != its:
                violation = f"I3: parameters of {mine} take a gradient computed on those of {its}"
        after = _carried_out(after, effect, push.positions)
    return ServerStep(process=after, answer=step.answer, violation=violation, passes=step.backup_pushes)


def handled(process: ServerProcess, event: ServerEvent, positions: int, *, loads_late: bool = False) -> ServerStep:
    """A control message or an event of the shell.  `positions`: how many the data set has."""
    step = event_table.handle(process.state, event, NOW_S)
    after, told, shipped = replace(process, state=step.state), [], []
    for effect in step.effects:
        match effect:
            case NotifyMaster(message=message):
                told.append(message)
            case SendCopy():
                after, shipment = _shipped(after, effect)
                shipped.append(shipment)
            case LoadModel() if loads_late:
                after = _left(after, effect)
            case LoadModel():
                done = loaded(_left(after, effect), positions)
                after, told = done.process, [*told, *done.told]
            case _:
                after = _carried_out(after, effect, EMPTY)
    return ServerStep(process=after, told=tuple(told), shipped=tuple(shipped))


def arrived(process: ServerProcess, shipment: Shipment, positions: int) -> ServerStep:
    """A copy comes in whole; what is a difference has been put onto what is staged."""
    step = event_table.handle(process.state, CopyArrived(head=shipment.head), NOW_S)
    after, asked_full, b = replace(process, state=step.state), None, shipment.head.bucket
    for effect in step.effects:
        match effect:
            case StageCopy():
                others = tuple(one for one in after.staged if one[0] != b)
                content = (b, _content(process, shipment, positions), shipment.origin)
                after = replace(after, staged=tuple(sorted((*others, content))))
            case RequestFullCopy(head=head):
                asked_full = head
            case NotifyMaster():
                pass
            case _:
                after = _carried_out(after, effect, EMPTY)
    told = tuple(effect.message for effect in step.effects if isinstance(effect, NotifyMaster))
    return ServerStep(process=after, told=told, asked_full=asked_full)


def full_wanted(head: CopyHead, ordinal: int) -> FullCopyRequested:
    return FullCopyRequested(
        lineage=head.lineage, bucket=head.bucket, version=head.version, target=place(ordinal, head.target)
    )


def place(ordinal: int, incarnation: Incarnation) -> ServerPlace:
    return ServerPlace(
        name=MemberName(f"s{ordinal}"), incarnation=incarnation, address=f"{incarnation}:1", ordinal=ordinal
    )


def _content(process: ServerProcess, shipment: Shipment, positions: int) -> Ledger:
    if not shipment.head.base:
        return shipment.ledger
    staged = next((ledger for b, ledger, _ in process.staged if b == shipment.head.bucket), (0,) * positions)
    return tuple(have + now - then for have, now, then in zip(staged, shipment.ledger, shipment.base, strict=True))


def _shipped(process: ServerProcess, effect: SendCopy) -> tuple[ServerProcess, Shipment]:
    """A hand-over is a difference where a copy went ahead, unless the whole is asked for."""
    content, to = dict(process.live)[effect.bucket], (effect.bucket, effect.target.incarnation)
    base = next((ledger for *whom, ledger in process.warmed if tuple(whom) == to), ())
    if effect.is_full:
        base = ()
    head = effect.head(_digest(effect.bucket, content), base=_digest(effect.bucket, base) if base else "")
    if not effect.is_final:
        others = tuple(one for one in process.warmed if one[:2] != to)
        process = replace(process, warmed=tuple(sorted((*others, (*to, content)))))
    origin = dict(process.origins)[effect.bucket]
    return process, Shipment(head=head, source=process.state.incarnation, ledger=content, origin=origin, base=base)


def _digest(bucket_: BucketId, content: Ledger) -> str:
    return ledger.as_digest(((bucket_, content),))


def file_written(process: ServerProcess, positions: int) -> ServerStep:
    """The fork's file is complete under its name."""
    order = process.file_to_write
    assert order is not None
    file = FileRecord(
        name=f"of {process.state.incarnation}",
        size_bytes=0,
        digest=ledger.as_digest(process.fork),
        lineage=process.state.lineage,
        marks=order.marks,
    )
    return handled(replace(process, file_to_write=None), FileWritten(cut=order.cut, file=file), positions)


def _carried_out(process: ServerProcess, effect: ServerEffect | PushEffect, positions: PositionSet) -> ServerProcess:
    match effect:
        case ApplyLive(buckets=buckets):
            return replace(process, live=ledger.added(process.live, buckets, positions))
        case ApplyBoth(buckets=buckets):
            live, fork = (ledger.added(x, buckets, positions) for x in (process.live, process.fork))
            return replace(process, live=live, fork=fork)
        case OpenFork(buckets=buckets):
            return replace(process, fork=tuple(one for one in process.live if one[0] in buckets))
        case ServeStaged(buckets=buckets):
            served = [one for one in process.staged if one[0] in buckets]
            process = _without(process, buckets)
            return replace(
                process,
                live=tuple(sorted((*process.live, *((b, content) for b, content, _ in served)))),
                origins=tuple(sorted((*process.origins, *((b, origin) for b, _, origin in served)))),
                staged=tuple(one for one in process.staged if one[0] not in buckets),
            )
        case DropLive(buckets=buckets):
            return _without(process, buckets)
        case DropStaged(buckets=buckets):
            return replace(process, staged=tuple(one for one in process.staged if one[0] not in buckets))
        case DropFork():
            return replace(process, fork=(), file_to_write=None)
        case WriteFork():
            return replace(process, file_to_write=effect)
        case _:
            raise AssertionError(f"the shell does not know {effect}")


def _without(process: ServerProcess, buckets: PositionSet) -> ServerProcess:
    live = tuple(one for one in process.live if one[0] not in buckets)
    origins = tuple(one for one in process.origins if one[0] not in buckets)
    return replace(process, live=live, origins=origins)


def _left(process: ServerProcess, order: LoadModel) -> ServerProcess:
    """Nothing but what is kept."""
    kept = tuple(one for one in process.live if one[0] in order.kept)
    return ServerProcess(state=process.state, live=kept, to_load=order)


def loaded(process: ServerProcess, positions: int) -> ServerStep:
    """The rest has been read."""
    assert process.to_load is not None
    restore = process.to_load.restore
    return handled(_loaded(process, restore, positions), _what_files_say(restore), positions)


def _loaded(process: ServerProcess, restore: Restore, positions: int) -> ServerProcess:
    """What is kept is of the new lineage from now on, like the rest (rule 30)."""
    contents = {**ledger.of_files(restore.files), **dict(process.live)}
    blank = ledger.blank(restore.buckets | restore.standby, positions)
    has_two = bool(restore.backed or restore.standby)  # both copies are one model
    model = (restore.lineage, Incarnation("both") if has_two else process.state.incarnation)
    return replace(
        process,
        to_load=None,
        live=tuple((b, contents.get(b, zeros)) for b, zeros in blank),
        origins=tuple((b, model) for b, _ in blank),
    )


def _what_files_say(restore: Restore) -> ModelLoaded:
    marks = tuple(marks for file in restore.files for marks in file.marks)
    return ModelLoaded(lineage=restore.lineage, marks=marks)
