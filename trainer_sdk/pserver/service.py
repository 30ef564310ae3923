"""The shell around the core: one lock under which marks and parameters change as one.

Connections call `push`, `pull` and `copy` from their own threads, the control stream calls `control`.  A push that
meets a hold waits here, no longer than the hold may last.  Loading a model, writing a fork's file (`fork_file`) and
sending copies of buckets (`couriers`) happen in threads of their own, without the lock but for moments.  An error
between core and tables would leave marks and parameters apart: then `fatal` is called and the process ends; another
one restores the last checkpoint (rule 26).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from master.api.identities import BucketId, Incarnation, Lineage, MemberName
from master.api.messages import Restore, ServerMessage
from master.api.positions import EMPTY, PositionSet
from master.api.storage import Storage
from trainer_sdk.errors import CheckpointError, InvariantViolationError, TableError, WireError
from trainer_sdk.pserver import bucket, moving
from trainer_sdk.pserver.bodies import gradients_in, ids_in, padded
from trainer_sdk.pserver.checkpoint_file import Author
from trainer_sdk.pserver.contents import Contents
from trainer_sdk.pserver.couriers import Couriers, Post
from trainer_sdk.pserver.dense import DensePart
from trainer_sdk.pserver.fork_file import BucketArrays, ForkGoneError, write_fork
from trainer_sdk.pserver.layout import Layout
from trainer_sdk.pserver.loading import load_model
from trainer_sdk.pserver.messages import (
    ApplyBoth,
    ApplyLive,
    AskFull,
    CopyArrived,
    CopyHead,
    DropFork,
    DropLive,
    DropStaged,
    Effect,
    Event,
    FullWanted,
    LoadFailed,
    LoadModel,
    ModelLoaded,
    OpenFork,
    PushAnswer,
    PushEffect,
    SendCopy,
    ServeStaged,
    StageCopy,
    Tell,
    Verdict,
    WriteFork,
)
from trainer_sdk.pserver.parcels import Parcel, contents_in, packed
from trainer_sdk.pserver.scratch import Scratch
from trainer_sdk.pserver.security import Security
from trainer_sdk.pserver.state import Limits, Phase, ServerState, joined
from trainer_sdk.pserver.tables import DenseGradient, ForkedModel, Gradient, Model, check_ids
from trainer_sdk.pserver.weighing import Tally, Weighing
from trainer_sdk.pserver.wire_copies import CopyStatus
from trainer_sdk.pserver.wire_messages import PullAnswer, PullHead, PullStatus, PushHead, Section

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the service needs of the world.  `tell` and `fatal` may be called under the lock and must not block."""

    storage: Storage
    tell: Callable[[ServerMessage], None]
    fatal: Callable[[BaseException], None]
    security: Security = field(default_factory=Security)  # towards other servers


class Service:
    """One parameter server's state, thread-safe."""

    def __init__(
        self, *, name: MemberName, incarnation: Incarnation, outside: Outside, limits: Limits | None = None
    ) -> None:
        self._name = name
        self._outside = outside
        self._state = ServerState(incarnation=incarnation, limits=limits or Limits())
        self._model: Model | None = None
        self._weighing = Weighing(Model(Layout.of((), 1), EMPTY), 0.0)  # of the model
        self._staged: dict[BucketId, Contents] = {}
        post = Post(pack=self._pack, full_wanted=self._full_wanted)
        self._couriers = Couriers(name, outside.security, post)
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

    @property
    def has_buckets(self) -> bool:
        """Whether anything may be lost with this process; what is staged may be its own by the table already."""
        state = self._state
        return bool(state.groups or state.moving.staged) or state.restoring is not None

    def close(self) -> None:
        """No deadline is watched any more; waiting pushes are answered, copies under way are broken off."""
        self._couriers.close()
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        self._clock.join()

    # ---- trainers ---------------------------------------------------------------------------------------------------

    def push(self, head: PushHead, body: memoryview) -> PushAnswer:
        """Judges, applies and marks as one step.  Raises WireError or TableError, and nothing has changed."""
        targets = head.push.targets
        pushed = joined(*[target.buckets for target in targets])
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
                self._weigh(gradients, pushed)
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
                    self._weighing.pass_dense(section.table, head.buckets)
                else:
                    check_ids(f"pull.tables.{part.spec.name}", ids[number], part.spec.shape[0])
                    pieces += padded([part.read(ids[number])])
                    self._weighing.pass_rows(section.table, ids[number])
            return PullAnswer(lineage=state.lineage, status=PullStatus.OK), pieces

    # ---- other servers ----------------------------------------------------------------------------------------------

    def judge(self, head: CopyHead) -> CopyStatus | None:
        """The answer to a copy whose body would change nothing; None: `copy` wants the body."""
        with self._lock:
            if self._model is None or self._state.lineage != head.lineage:
                return CopyStatus.ARRIVED  # of another lineage: its sender will hear of it from the master
            if head.base:
                return CopyStatus.NEED_FULL  # this release neither sends differences nor builds on them (ADR 0313)
            if moving.wants(self._state, head):
                return None
            self._handle(CopyArrived(head=head))  # of what is here already: INSTALLED, once more
        return CopyStatus.ARRIVED

    def copy(self, head: CopyHead, body: memoryview) -> CopyStatus:
        """Stages a bucket that another server has sent, if it is meant for this process now; keeps `body`.

        Raises WireError or TableError for what is no bucket of this job, and nothing has changed.
        """
        with self._lock:
            model = self._model if self._state.lineage == head.lineage else None
        if model is None:
            return CopyStatus.ARRIVED  # of another lineage: its sender will hear of it from the master
        if head.base:
            return CopyStatus.NEED_FULL  # this release neither sends differences nor builds on them (ADR 0313)
        contents = contents_in(head, body, model.layout)
        with self._lock:
            for effect in self._handle(CopyArrived(head=head)):
                if isinstance(effect, StageCopy):
                    self._staged[head.bucket] = contents
        return CopyStatus.ARRIVED

    def _pack(self, order: SendCopy) -> Parcel | None:
        """The bucket as it is now; None: it is not to be sent any more.

        What is frozen does not change, whatever goes on beside it, so it is copied without the lock; should it have
        been opened or dropped meanwhile, what was copied is worthless.
        """
        with self._lock:
            current, model = moving.try_current(self._state, order), self._model
            if current is None or model is None:
                return None
            contents = [] if order.is_final else list(model.content(order.bucket))
        if order.is_final:
            contents = list(model.content(order.bucket))
            with self._lock:
                if moving.try_current(self._state, order) != current:
                    return None
        return packed(current, contents, model.layout)

    def _full_wanted(self, order: SendCopy) -> None:
        wanted = FullWanted(lineage=order.lineage, bucket=order.bucket, version=order.version, target=order.target)
        self.control(wanted)

    # ---- the master -------------------------------------------------------------------------------------------------

    def control(self, event: Event) -> None:
        """Takes a message of the master, or a result of this service's own threads."""
        with self._lock:
            self._handle(event)

    # ---- effects, under the lock ------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> tuple[Effect, ...]:
        """All effects; those of a copy are for who brought it, the others are carried out."""
        before = self._state.lineage
        step = bucket.handle(self._state, event, time.monotonic())
        self._set(step.state)
        log.debug("%s", event)
        for effect in step.effects:
            self._carry_out(effect)
        if step.state.is_ready and step.state.lineage != before:
            self._outside.tell(self._weighing.begin(step.state.lineage, step.state.buckets))
            self._changed.notify_all()
        return step.effects

    def _set(self, state: ServerState) -> None:
        if state.cut is not self._state.cut:
            self._changed.notify_all()
        self._state = state

    def _carry_out(self, effect: Effect | PushEffect) -> None:
        match effect:
            case Tell():
                self._outside.tell(effect.message)
            case OpenFork():
                self._loaded().open_fork(effect.buckets)
            case DropFork():
                if self._model is not None:
                    self._model.drop_fork()
            case WriteFork():
                self._start(self._write, effect, ForkedModel(self._loaded()))
            case LoadModel():
                self._model = None
                self._staged.clear()
                self._start(self._load, effect.restore)
            case SendCopy() | ServeStaged() | DropStaged() | DropLive():
                self._move(effect)
            case ApplyLive() | ApplyBoth() | StageCopy() | AskFull():
                pass  # whoever brought the gradient or the copy acts on these
            case _:
                assert_never(effect)

    def _move(self, effect: SendCopy | ServeStaged | DropStaged | DropLive) -> None:
        match effect:
            case SendCopy():
                self._couriers.send(effect)
            case DropStaged():
                for number in effect.buckets:
                    self._staged.pop(BucketId(number), None)
            case ServeStaged() | DropLive():
                self._change_tables(effect)
            case _:
                assert_never(effect)

    def _change_tables(self, effect: ServeStaged | DropLive) -> None:
        """A copy was checked when it came; should it not fit all the same, marks and parameters would be apart."""
        try:
            if isinstance(effect, DropLive):
                self._loaded().remove(effect.buckets)
                return
            for number in effect.buckets:
                self._loaded().install(number, self._staged.pop(BucketId(number)))
        except BaseException as error:
            self._outside.fatal(error)
            raise

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
            self._model, self._weighing = model, Weighing(model, time.monotonic())
        log.info("lineage %d: model ready after %.2f s", order.lineage, time.monotonic() - begun)
        return ModelLoaded(lineage=order.lineage, marks=marks)

    def _write(self, order: WriteFork, forked: ForkedModel) -> Event | None:
        author = Author(
            server=self._name,
            incarnation=self.incarnation,
            bucket_count=forked.layout.bucket_count,
            tables=forked.layout.tables,
        )

        def read(forked: ForkedModel, number: int) -> BucketArrays:
            with self._lock:
                cut = self._state.cut
                if cut is None or cut.cut != order.cut or cut.phase is not Phase.SEALED:
                    raise ForkGoneError
                return list(forked.read(number))

        return write_fork(self._outside.storage, author, order, forked, read)

    def _watch_deadlines(self) -> None:
        try:
            while not self._is_closed:
                tally = self._wait_for_tally()
                if tally is not None:
                    self._outside.tell(tally.report())
        except BaseException as error:
            self._outside.fatal(error)
            raise

    def _wait_for_tally(self) -> Tally | None:
        """What a report that is due is made of, without the lock; deadlines are kept meanwhile.  None: look again."""
        with self._lock:
            report_s = self._weighing.due_s if self._state.is_ready else math.inf
            at_s, event = bucket.deadline(self._state) or (math.inf, None)
            now_s = time.monotonic()
            if event is not None and now_s >= at_s:
                self._handle(event)
            elif now_s >= report_s:
                return self._weighing.take(self._state.lineage, self._state.buckets, now_s)
            elif not self._is_closed:
                left_s = min(at_s, report_s) - now_s
                self._changed.wait(left_s if left_s < math.inf else None)
            return None

    def _weigh(self, gradients: Sequence[Gradient], pushed: PositionSet) -> None:
        for gradient in gradients:
            if isinstance(gradient, DenseGradient):
                self._weighing.pass_dense(gradient.table, pushed)
            else:
                self._weighing.pass_rows(gradient.table, gradient.ids)


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
