"""A parameter server in the checker's world: the real core, and around it a shell whose parameters are ledgers.

What the real shell does over time happens here at once: loading a model takes no step of its own (a crash while loading
is a crash just before RESTORE arrives).  Writing a file does take one: `file_to_write` says that a fork waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from master.api.identities import NO_LINEAGE, Incarnation, Lineage
from master.api.messages import FileRecord, Restore, ServerMessage
from master.api.positions import EMPTY, PositionSet
from tests.protocol import ledger
from tests.protocol.interning import hashed_once
from tests.protocol.ledger import Ledgers
from trainer_sdk.pserver import bucket
from trainer_sdk.pserver.messages import (
    ApplyBoth,
    ApplyLive,
    DropFork,
    Effect,
    Event,
    FileWritten,
    LoadModel,
    ModelLoaded,
    OpenFork,
    Push,
    PushAnswer,
    PushEffect,
    Tell,
    WriteFork,
)
from trainer_sdk.pserver.state import ServerState

NOW_S = 0.0

Model: TypeAlias = tuple[Lineage, Incarnation]
"""What parameters really are: restored for this lineage by this process, whatever anybody calls them."""


@dataclass(frozen=True, kw_only=True)
class ServerProcess:
    """One process.  Ledgers are there exactly while it holds a model, the fork's while a fork is open or sealed."""

    state: ServerState
    live: Ledgers = ()
    fork: Ledgers = ()
    file_to_write: WriteFork | None = None
    __hash__ = hashed_once

    @property
    def model(self) -> Model | None:
        """None while it has none to give."""
        return (self.state.lineage, self.state.incarnation) if self.state.lineage != NO_LINEAGE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStep:
    process: ServerProcess
    told: tuple[ServerMessage, ...] = ()
    answer: PushAnswer | None = None
    violation: str | None = None


def started(incarnation: Incarnation) -> ServerProcess:
    return ServerProcess(state=ServerState(incarnation=incarnation))


def pushed(process: ServerProcess, push: Push, computed_on: Model) -> ServerStep:
    """A push arrives.  `computed_on`: this server's parameters that the gradient was really computed on (I3)."""
    step = bucket.push(process.state, push)
    after = replace(process, state=step.state)
    violation = None
    for effect in step.effects:
        if not isinstance(effect, WriteFork) and computed_on != process.model:
            violation = f"I3: parameters of {process.model} take a gradient computed on those of {computed_on}"
        after = _carried_out(after, effect, push.positions)
    return ServerStep(process=after, answer=step.answer, violation=violation)


def handled(process: ServerProcess, event: Event, positions: int) -> ServerStep:
    """A control message or an event of the shell.  `positions`: how many the data set has."""
    step = bucket.handle(process.state, event, NOW_S)
    after, told = replace(process, state=step.state), []
    for effect in step.effects:
        match effect:
            case Tell(message=message):
                told.append(message)
            case LoadModel(restore=restore):
                loaded = handled(_loaded(after, restore, positions), _what_files_say(restore), positions)
                after, told = loaded.process, [*told, *loaded.told]
            case _:
                after = _carried_out(after, effect, EMPTY)
    return ServerStep(process=after, told=tuple(told))


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


def _carried_out(process: ServerProcess, effect: Effect | PushEffect, positions: PositionSet) -> ServerProcess:
    match effect:
        case ApplyLive(buckets=buckets):
            return replace(process, live=ledger.added(process.live, buckets, positions))
        case ApplyBoth(buckets=buckets):
            live, fork = (ledger.added(x, buckets, positions) for x in (process.live, process.fork))
            return replace(process, live=live, fork=fork)
        case OpenFork():
            return replace(process, fork=process.live)
        case DropFork():
            return replace(process, fork=(), file_to_write=None)
        case WriteFork():
            return replace(process, file_to_write=effect)
        case _:
            raise AssertionError(f"the shell does not know {effect}")


def _loaded(process: ServerProcess, restore: Restore, positions: int) -> ServerProcess:
    contents = ledger.of_files(restore.files)
    blank = ledger.blank(restore.buckets, positions)
    return replace(process, live=tuple((b, contents.get(b, zeros)) for b, zeros in blank), fork=(), file_to_write=None)


def _what_files_say(restore: Restore) -> ModelLoaded:
    marks = tuple(marks for file in restore.files for marks in file.marks)
    return ModelLoaded(lineage=restore.lineage, marks=marks)
