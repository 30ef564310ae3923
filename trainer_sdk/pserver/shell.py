"""The shell around the core: one lock under which marks and parameters change as one.

The core (`core.pushes`, `core.control`) decides; the shell carries out the decision before anybody else gets the lock,
or starts a background job where that would take long.  An error between core and tables would leave marks and
parameters apart: `fatal` is called then and the process ends, and another one restores the last checkpoint (rule 26).
`DeadlineThread` hands in what time alone brings.  Requests come from `process` and `transfer`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from master.api.checkpoints.storage import Storage
from master.api.identities import BucketId, Incarnation
from master.api.messages import Restore, ServerMessage
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import InvariantViolationError, WireError
from trainer_sdk.pserver.core import control, pushes
from trainer_sdk.pserver.core.effects import (
    ApplyBoth,
    ApplyLive,
    DropFork,
    DropLive,
    DropStaged,
    LoadModel,
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
from trainer_sdk.pserver.core.server_state import ServerLimits, ServerState
from trainer_sdk.pserver.tables.bucket_load import BucketLoadMeter, LoadSample
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Gradient, Model
from trainer_sdk.pserver.tables.staging_area import StagingArea
from trainer_sdk.pserver.transport.security import Security

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """What a server needs of the world.  `tell` and `fatal` may be called under the lock and must not block."""

    storage: Storage
    notify_master: Callable[[ServerMessage], None]
    fatal: Callable[[BaseException], None]
    security: Security = field(default_factory=Security)  # towards other servers


def _of_nothing() -> BucketLoadMeter:
    """Holds no model's memory."""
    return BucketLoadMeter(Model(Layout.of((), 1), EMPTY), 0.0)


BackgroundJob = SendCopy | LoadModel | WriteFork
"""What is begun under the lock and goes on without it."""


class Shell:
    """What one server has.  Everything here is read, changed and called under `lock`, but for `control` and `close`."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        context: ServerContext,
        limits: ServerLimits,
        begin: Callable[[BackgroundJob], None],
    ) -> None:
        """`begin` is called under the lock and must not block."""
        self.context = context
        self._begin = begin
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)  # the cut, a lineage that is ready, the end
        self.state = ServerState(incarnation=incarnation, limits=limits)
        self.model: Model | None = None
        self.load_meter = _of_nothing()  # of the model
        self.staged = StagingArea()
        self.is_closed = False

    def close(self) -> None:
        """Whoever waits for a change goes on, and finds this closed."""
        with self.lock:
            self.is_closed = True
            self.changed.notify_all()

    def control(self, event: ServerEvent) -> None:
        """Takes a message of the master, or a result of this server's own threads."""
        with self.lock:
            self.handle(event)

    # ---- the core's answers, under the lock -------------------------------------------------------------------------

    def handle(self, event: ServerEvent) -> tuple[ServerEffect, ...]:
        """All effects; those of a copy are for who brought it, the others are carried out."""
        before = self.state.lineage
        step = control.handle(self.state, event, time.monotonic())
        self._set(step.state)
        log.debug("%s", event)
        for effect in step.effects:
            self._carry_out(effect)
        if step.state.is_ready and step.state.lineage != before:
            self.context.notify_master(self.load_meter.first_report(step.state.lineage, step.state.buckets))
            self.changed.notify_all()
        return step.effects

    def apply_push(self, step: pushes.PushOutcome, gradients: list[Gradient], pushed: PositionSet) -> None:
        """A push's marks and parameters; `gradients` were checked against the model."""
        self._apply(self.loaded(), step.effects, gradients, pushed)
        self._set(step.state)
        log.debug("%s", step.effects)

    def loaded(self) -> Model:
        """The model.  Raises InvariantViolationError where there is none."""
        if self.model is None:
            raise InvariantViolationError("the core has buckets, but there are no tables")
        return self.model

    def install_model(self, order: Restore, model: Model) -> bool:
        """Whether this model is still wanted; it is the one from now on."""
        if self.state.restoring is not order:
            return False  # a newer order was taken meanwhile
        self.model, self.load_meter = model, BucketLoadMeter(model, time.monotonic())
        return True

    def _left(self, buckets: PositionSet) -> Model | None:
        """The model with nothing but these; None: there are none, and this one's memory is free for a new one."""
        if not buckets:
            self.load_meter = _of_nothing()
            return None
        model = self.loaded()
        model.remove(model.buckets - buckets)
        return model

    def model_of(self, layout: bytes) -> Model:
        """The model.  Raises WireError where a trainer has another layout in mind."""
        model = self.loaded()
        if model.layout.digest != layout:
            raise WireError("the trainer's tables or number of buckets are not those of this job: register again")
        return model

    def _set(self, state: ServerState) -> None:
        if state.cut is not self.state.cut:
            self.changed.notify_all()
        self.state = state

    def _carry_out(self, effect: ServerEffect | PushEffect) -> None:
        match effect:
            case NotifyMaster():
                self.context.notify_master(effect.message)
            case OpenFork():
                self.loaded().open_fork(effect.buckets)
            case DropFork():
                if self.model is not None:
                    self.model.drop_fork()
            case LoadModel():
                self.model = self._left(effect.keeps)
                self.staged.clear()
                self._begin(effect)
            case WriteFork() | SendCopy():
                self._begin(effect)
            case ServeStaged() | DropStaged() | DropLive():
                self._change_buckets(effect)
            case ApplyLive() | ApplyBoth() | StageCopy() | RequestFullCopy():
                pass  # whoever brought the gradient or the copy acts on these
            case _:
                assert_never(effect)

    def _change_buckets(self, effect: ServeStaged | DropStaged | DropLive) -> None:
        """A copy was checked when it came; should it not fit all the same, marks and parameters would be apart."""
        try:
            match effect:
                case ServeStaged():
                    for number in effect.buckets:
                        for contents in self.staged.take(BucketId(number)):
                            self.loaded().install(number, contents)
                case DropStaged():
                    for number in effect.buckets:
                        self.staged.drop(BucketId(number))
                case DropLive():
                    self.loaded().remove(effect.buckets)
                case _:
                    assert_never(effect)
        except BaseException as error:
            self.context.fatal(error)
            raise

    def _apply(
        self, model: Model, effects: Sequence[PushEffect], gradients: list[Gradient], pushed: PositionSet
    ) -> None:
        try:
            for effect in effects:
                if isinstance(effect, ApplyLive | ApplyBoth):
                    model.apply(effect.buckets, gradients, pushed, to_fork=isinstance(effect, ApplyBoth))
                else:
                    self._carry_out(effect)
        except BaseException as error:
            self.context.fatal(error)
            raise


class DeadlineThread:
    """Watched until the shell is closed."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Once the shell is closed: nothing happens any more."""
        self._thread.join()

    def _watch(self) -> None:
        shell = self._shell
        try:
            while not shell.is_closed:
                tally = self._wait_for_tally()
                if tally is not None:
                    shell.context.notify_master(tally.report())
        except BaseException as error:
            shell.context.fatal(error)
            raise

    def _wait_for_tally(self) -> LoadSample | None:
        """What a report that is due is made of, without the lock; deadlines are kept meanwhile.  None: look again."""
        shell = self._shell
        with shell.lock:
            report_s = shell.load_meter.due_s if shell.state.is_ready else math.inf
            at_s, event = control.next_deadline(shell.state) or (math.inf, None)
            now_s = time.monotonic()
            if event is not None and now_s >= at_s:
                shell.handle(event)
            elif now_s >= report_s:
                return shell.load_meter.take_sample(shell.state.lineage, shell.state.buckets, now_s)
            elif not shell.is_closed:
                left_s = min(at_s, report_s) - now_s
                shell.changed.wait(left_s if left_s < math.inf else None)
            return None
