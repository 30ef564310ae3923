"""The shell around the core: one lock under which marks and parameters change as one.

Connections call `push` and `pull` from their own threads, the control stream calls `control`.  A push that meets a hold
waits here, no longer than the hold may last.  Loading a model and writing a fork's file happen in threads of their own,
without the lock but for moments.  An error between core and tables would leave marks and parameters apart: then
`fatal` is called and the process ends; another one restores the last checkpoint (rule 26).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from master.api.errors import StorageError
from master.api.identities import Incarnation, Lineage, MemberName
from master.api.messages import Restore, ServerMessage
from master.api.positions import PositionSet, union
from master.api.storage import Storage
from trainer_sdk.errors import CheckpointError, InvariantViolationError, TableError, WireError
from trainer_sdk.pserver import bucket
from trainer_sdk.pserver.bodies import gradients_in, ids_in, padded
from trainer_sdk.pserver.bucket_bytes import encode_bucket
from trainer_sdk.pserver.checkpoint_file import Author, write_checkpoint
from trainer_sdk.pserver.dense import DensePart
from trainer_sdk.pserver.loading import load_model
from trainer_sdk.pserver.messages import (
    ApplyBoth,
    ApplyLive,
    DropFork,
    Effect,
    Event,
    FileFailed,
    FileWritten,
    LoadFailed,
    LoadModel,
    ModelLoaded,
    OpenFork,
    PushAnswer,
    PushEffect,
    Tell,
    Verdict,
    WriteFork,
)
from trainer_sdk.pserver.scratch import Scratch
from trainer_sdk.pserver.state import Limits, Phase, ServerState
from trainer_sdk.pserver.tables import ForkedModel, Gradient, Model, check_ids
from trainer_sdk.pserver.wire_messages import PullAnswer, PullHead, PullStatus, PushHead, Section

log = logging.getLogger(__name__)


class ForkGoneError(Exception):
    """The fork whose file is being written has ended; the file is not wanted any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the service needs of the world.  `tell` and `fatal` are called under the lock and must not block."""

    storage: Storage
    tell: Callable[[ServerMessage], None]
    fatal: Callable[[BaseException], None]


class Service:
    """One parameter server's state, thread-safe."""

    def __init__(
        self, *, name: MemberName, incarnation: Incarnation, outside: Outside, limits: Limits | None = None
    ) -> None:
        self._name = name
        self._outside = outside
        self._state = ServerState(incarnation=incarnation, limits=limits or Limits())
        self._model: Model | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_closed = False
        self._clock = threading.Thread(target=self._watch_deadlines, name="deadlines", daemon=True)
        self._clock.start()
        self.longest_hold_s = 0.0

    @property
    def incarnation(self) -> Incarnation:
        return self._state.incarnation

    @property
    def lineage(self) -> Lineage:
        return self._state.lineage

    def close(self) -> None:
        """No deadline is watched any more; waiting pushes are answered."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        self._clock.join()

    # ---- trainers ---------------------------------------------------------------------------------------------------

    def push(self, head: PushHead, body: memoryview) -> PushAnswer:
        """Judges, applies and marks as one step.  Raises WireError or TableError, and nothing has changed."""
        targets = head.push.targets
        pushed = targets[0].buckets if len(targets) == 1 else union(target.buckets for target in targets)
        begun = time.monotonic()
        with self._lock:
            until = begun + 2 * self._state.limits.hold_s
            while True:
                step = bucket.push(self._state, head.push)
                if not step.effects:
                    is_held = any(ruling.verdict is Verdict.HELD for ruling in step.answer.rulings)
                    left = until - time.monotonic()
                    if not is_held or left <= 0 or self._is_closed:
                        return step.answer
                    self._changed.wait(left)
                    self.longest_hold_s = max(self.longest_hold_s, time.monotonic() - begun)
                    continue
                model = self._model_of(head.layout)
                gradients = gradients_in(body, head.sections, model.layout)
                model.check(gradients, pushed)
                self._apply(model, step.effects, gradients, pushed)
                self._set(step.state)
                return step.answer

    def pull(self, head: PullHead, body: memoryview, scratch: Scratch) -> tuple[PullAnswer, list[memoryview]]:
        """The answer and its body, copied out under the lock: of one lineage, and no bucket torn.

        Raises WireError or TableError.
        """
        with self._lock:
            state = self._state
            if not state.is_ready:
                return PullAnswer(lineage=state.lineage, status=PullStatus.NOT_READY), []
            if not state.has(head.buckets):
                return PullAnswer(lineage=state.lineage, status=PullStatus.MOVED), []
            model = self._model_of(head.layout)
            ids = ids_in(body, head.sections, model.layout)
            pieces: list[memoryview] = []
            for number, section in enumerate(head.sections):
                part = model.parts[section.table]
                if isinstance(part, DensePart):
                    pieces += _copied(part, section, head.buckets, scratch, number)
                else:
                    check_ids(f"pull.tables.{part.spec.name}", ids[number], part.spec.shape[0])
                    pieces += padded([part.read(ids[number])])
            return PullAnswer(lineage=state.lineage, status=PullStatus.OK), pieces

    # ---- the master -------------------------------------------------------------------------------------------------

    def control(self, event: Event) -> None:
        """Takes a message of the master, or a result of this service's own threads."""
        with self._lock:
            self._handle(event)

    # ---- effects, under the lock ------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        step = bucket.handle(self._state, event, time.monotonic())
        self._set(step.state)
        log.debug("%s", event)
        for effect in step.effects:
            self._carry_out(effect)

    def _set(self, state: ServerState) -> None:
        if state.cut is not self._state.cut:
            self._changed.notify_all()
        self._state = state

    def _carry_out(self, effect: Effect | PushEffect) -> None:
        match effect:
            case Tell():
                self._outside.tell(effect.message)
            case OpenFork():
                self._loaded().open_fork()
            case DropFork() if self._model is not None:
                self._model.drop_fork()
            case WriteFork():
                self._start(self._write, effect, ForkedModel(self._loaded()))
            case LoadModel():
                self._model = None
                self._start(self._load, effect.restore)
            case _:
                pass

    def _apply(
        self, model: Model, effects: Sequence[PushEffect], gradients: list[Gradient], pushed: PositionSet
    ) -> None:
        try:
            for effect in effects:
                if isinstance(effect, ApplyLive | ApplyBoth):
                    model.apply(effect, gradients, pushed)
                else:
                    self._carry_out(effect)
        except BaseException as error:
            self._outside.fatal(error)
            raise

    def _loaded(self) -> Model:
        if self._model is None:
            raise InvariantViolationError("the core has buckets, but there are no tables")
        return self._model

    def _model_of(self, layout: bytes) -> Model:
        model = self._loaded()
        if model.layout.digest != layout:
            raise WireError("the trainer's tables or number of buckets are not those of this job: register again")
        return model

    # ---- threads of the service's own -------------------------------------------------------------------------------

    def _start(self, work: Callable[..., Event | None], *args: object) -> None:
        """At most one model is being loaded and one file written that anybody waits for; others end early."""

        def run() -> None:
            try:
                event = work(*args)
                if event is not None:
                    self.control(event)
            except BaseException as error:
                self._outside.fatal(error)
                raise

        threading.Thread(target=run, name=work.__name__, daemon=True).start()

    def _load(self, order: Restore) -> Event | None:
        begun = time.monotonic()
        try:
            model, marks = load_model(self._outside.storage, order)
        except (CheckpointError, TableError) as error:
            return LoadFailed(lineage=order.lineage, message=str(error))
        with self._lock:
            if self._state.restoring is not order:
                return None  # a newer one was taken meanwhile
            self._model = model
        log.info("lineage %d: model ready after %.2f s", order.lineage, time.monotonic() - begun)
        return ModelLoaded(lineage=order.lineage, marks=marks)

    def _write(self, effect: WriteFork, forked: ForkedModel) -> Event | None:
        forked.arrange()
        author = Author(
            server=self._name,
            incarnation=self.incarnation,
            bucket_count=forked.layout.bucket_count,
            tables=forked.layout.tables,
        )

        def read_bucket(number: int) -> list[memoryview]:
            with self._lock:
                cut = self._state.cut
                if cut is None or cut.cut != effect.cut or cut.phase is not Phase.SEALED:
                    raise ForkGoneError
                contents = list(forked.read(number))
            return encode_bucket(contents, forked.layout.bucket_count)

        try:
            record = write_checkpoint(self._outside.storage, author, effect.cut, effect.marks, read_bucket)
        except ForkGoneError:
            return None
        except StorageError as error:
            return FileFailed(cut=effect.cut, message=str(error))
        return FileWritten(cut=effect.cut, file=record)

    def _watch_deadlines(self) -> None:
        with self._lock:
            while not self._is_closed:
                due = bucket.deadline(self._state)
                if due is None:
                    self._changed.wait()
                    continue
                at_s, event = due
                left = at_s - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._handle(event)


def _copied(
    part: DensePart, section: Section, buckets: PositionSet, scratch: Scratch, slot: int
) -> Iterator[memoryview]:
    size = part.layout.count(buckets)
    if section.length != size:
        raise WireError(f"tables.{part.spec.name}: {section.length} elements asked for where the buckets have {size}")
    out = scratch.array(slot, part.dtype, size)
    at = 0
    for values in part.read(buckets):
        out[at : at + len(values)] = values
        at += len(values)
    return padded((out,))
