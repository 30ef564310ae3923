"""The shell around the core: one lock under which marks and parameters change as one.

`core.pushes` and `core.event_table` decide; the shell carries out the decision before the lock is released, or
starts a background job where that would take long.  An error between core and tables would leave marks and parameters
apart: `fatal` is called then and the process ends, and another process restores the last checkpoint (rule 26).
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
from master.api.messages.from_members import ServerMessage
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import InvariantViolationError, WireError
from trainer_sdk.pserver.core import event_table, pushes
from trainer_sdk.pserver.core.server_events import (
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
from trainer_sdk.transport.security import Security

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """Services of a server's process; the two callbacks may be called under the lock and must not block."""

    storage: Storage
    notify_master: Callable[[ServerMessage], None]
    fatal: Callable[[BaseException], None]
    security: Security = field(default_factory=Security)  # of connections to other servers


def _empty_meter() -> BucketLoadMeter:
    """The meter while there is no model."""
    return BucketLoadMeter(Model(Layout.of((), 1), EMPTY), 0.0)


BackgroundJob = SendCopy | LoadModel | WriteFork
"""Effects that are begun under the lock and continue without it."""


class Shell:
    """State and model of one server.  Used under `lock`, but for `control` and `close`."""

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
        self.changed = threading.Condition(self.lock)  # notified of a new cut, a loaded lineage, the end
        self.state = ServerState(incarnation=incarnation, limits=limits)
        self.model: Model | None = None
        self.load_meter = _empty_meter()  # of the model
        self.staged = StagingArea()
        self.is_closed = False

    def close(self) -> None:
        """Wakes all waiting threads, which find the shell closed."""
        with self.lock:
            self.is_closed = True
            self.changed.notify_all()

    def control(self, event: ServerEvent) -> None:
        """Handles a message of the master, or the result of a background job."""
        with self.lock:
            self.handle(event)

    # ---- the core's answers, under the lock -------------------------------------------------------------------------

    def handle(self, event: ServerEvent) -> tuple[ServerEffect, ...]:
        """Carries out the event's effects and returns them all; the caller acts on those about its copy."""
        before = self.state.lineage
        step = event_table.handle(self.state, event, time.monotonic())
        self._set(step.state)
        log.debug("%s", event)  # failpoint: logged before anything follows from it
        for effect in step.effects:
            self._carry_out(effect)
        if step.state.is_ready and step.state.lineage != before:
            self.context.notify_master(self.load_meter.first_report(step.state.lineage, step.state.buckets))
            self.changed.notify_all()
        return step.effects

    def apply_push(self, step: pushes.PushOutcome, gradients: list[Gradient], pushed: PositionSet) -> None:
        """Changes marks and parameters by a push; `gradients` were checked against the model."""
        self._apply(self.loaded(), step.effects, gradients, pushed)
        self._set(step.state)
        log.debug("%s", step.effects)  # failpoint: logged before anything follows from it

    def loaded(self) -> Model:
        """The model.  Raises InvariantViolationError where there is none."""
        if self.model is None:
            raise InvariantViolationError("the core has buckets, but there are no tables")
        return self.model

    def install_model(self, order: Restore, model: Model) -> bool:
        """Makes this the model; False: a newer order was taken meanwhile."""
        if self.state.restoring is not order:
            return False
        self.model, self.load_meter = model, BucketLoadMeter(model, time.monotonic())
        return True

    def _reduced_model(self, buckets: PositionSet) -> Model | None:
        """The model with these buckets alone; None, without buckets, frees its memory for a new one."""
        if not buckets:
            self.load_meter = _empty_meter()
            return None
        model = self.loaded()
        model.remove(model.buckets - buckets)
        return model

    def model_of(self, layout: bytes) -> Model:
        """The model.  Raises WireError if a trainer computes with another layout."""
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
                self.model = self._reduced_model(effect.kept)
                self.staged.clear()
                self._begin(effect)
            case WriteFork() | SendCopy():
                self._begin(effect)
            case ServeStaged() | DropStaged() | DropLive():
                self._change_buckets(effect)
            case ApplyLive() | ApplyBoth() | StageCopy() | RequestFullCopy():
                pass  # the caller has the gradient or the copy, and acts on these
            case _:
                assert_never(effect)

    def _change_buckets(self, effect: ServeStaged | DropStaged | DropLive) -> None:
        """Serves or drops contents.  A failure would leave marks and parameters apart, so it is fatal."""
        try:
            match effect:
                case ServeStaged():
                    for number in effect.buckets:
                        for contents in self.staged.pop_layers(BucketId(number)):
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
    """Hands in expired holds and forks, and reports bucket loads, until the shell is closed."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the thread's end, once the shell is closed."""
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
        """The sample for a report that is due; None after a deadline, a change, or the end."""
        shell = self._shell
        with shell.lock:
            report_s = shell.load_meter.due_s if shell.state.is_ready else math.inf
            at_s, event = event_table.next_deadline(shell.state) or (math.inf, None)
            now_s = time.monotonic()
            if event is not None and now_s >= at_s:
                shell.handle(event)
            elif now_s >= report_s:
                return shell.load_meter.take_sample(shell.state.lineage, shell.state.buckets, now_s)
            elif not shell.is_closed:
                left_s = min(at_s, report_s) - now_s
                shell.changed.wait(left_s if left_s < math.inf else None)
            return None
