"""Driver of the trainer's protocol between two threads: the script's and the master stream's.

One lock guards the state.  The thread that brings an event handles it, sends the messages in order, and leaves results
for the script in fields.  The script's thread waits on one condition and never for a call: leases are acquired before
they are needed.  Not here: what the script sees (`session`, `dataset`, `tables`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import assert_never, cast

from master.api.identities import Lineage
from master.api.messages.from_members import TrainerMessage
from master.api.messages.to_members import Drain, MasterMessage, Registered, ToTrainer
from trainer_sdk.errors import GracePeriodExpired, MasterUnavailableError, UsageError
from trainer_sdk.master_stream import MasterStream
from trainer_sdk.protocol.trainer_events import (
    AcquireDue,
    AcquireLater,
    AssignRank,
    BatchRequested,
    Discard,
    DrainDeadlinePassed,
    DrainRequested,
    FinalHookRun,
    Finish,
    GiveBatch,
    LeaveRequested,
    MasterStreamBroken,
    MasterStreamOpened,
    ReportDue,
    ReportRefusal,
    ResendPush,
    ScriptFailed,
    SendPush,
    SendToMaster,
    TrainerEffect,
    TrainerEvent,
    UseRoute,
)
from trainer_sdk.protocol.trainer_state import TrainerPhase, TrainerState
from trainer_sdk.protocol.transitions import handle

FIRST_REPORT_S = 1.0  # until the master has sent its report interval


class TrainerDriver:
    """State of one trainer and its transitions.  Public methods may be called from any thread."""

    def __init__(self, state: TrainerState, *, check_alive: Callable[[], None] = lambda: None) -> None:
        """`check_alive` raises when waiting is pointless, because the process that would answer has ended."""
        self.state = state
        self._check_alive = check_alive
        self.place = AssignRank(rank=0, world_size=1)
        self.route: UseRoute | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._answer: GiveBatch | Finish | None = None
        self._must_wait = False
        self._complaint = ""
        self._is_placed = False
        self._is_time_up = False
        self._at_time_up: list[Callable[[], None]] = []
        self._disconnected_since_s: float | None = monotonic()
        self._disconnect_reason = "no answer yet"
        self._report_every_s = FIRST_REPORT_S
        self.waited_s = 0.0  # for parameter servers, in total; written by the script's thread alone
        self.is_waiting_for_servers = False  # likewise
        self.pushed: int | None = None  # the flight that was pushed last; likewise
        self._report: Callable[[], ReportDue] = lambda: ReportDue(steps=0)
        self.stream = MasterStream(self)

    # ---- events in, effects out -------------------------------------------------------------------------------------

    def handle(self, event: TrainerEvent) -> tuple[TrainerEffect, ...]:
        """Handles an event and sends its messages; returns all effects, for the caller to act on."""
        with self._lock:
            return self._feed(event)

    def _feed(self, event: TrainerEvent) -> tuple[TrainerEffect, ...]:
        step = handle(self.state, event)
        self.state = step.state
        messages: list[TrainerMessage] = []
        for effect in step.effects:
            if isinstance(effect, SendToMaster):
                messages.append(effect.message)
            else:
                self._carry_out(effect)
        if messages:
            self.stream.send(tuple(messages))
        return step.effects

    def _carry_out(self, effect: TrainerEffect) -> None:
        match effect:
            case GiveBatch() | Finish():
                self._answer = effect
                self._must_wait = False
            case AcquireLater(request=request, after_s=after_s):
                self._must_wait = True
                self.stream.after(after_s, lambda: self.handle(AcquireDue(request=request)))
            case UseRoute():
                self.route = effect
            case AssignRank():
                self.place = effect
                self._is_placed = True
            case ReportRefusal(field=field, message=message):
                self._complaint = f"{field}: {message}"
            case SendPush() | ResendPush() | Discard() | SendToMaster():
                return  # the caller acts on these
            case _:
                assert_never(effect)
        self._changed.notify_all()

    # ---- the script's side ------------------------------------------------------------------------------------------

    def next_batch(self, *, budget_s: float) -> GiveBatch | Finish:
        """The next batch, or the end.

        Raises MasterUnavailableError when nothing was left to train and no master answered for `budget_s`, UsageError
        if the declaration was refused or only batches that the script never finished are left, GracePeriodExpired when
        the grace period is over.
        """
        began_s = monotonic()
        with self._lock:
            if self._answer is None and not self.state.is_script_waiting:
                self._feed(BatchRequested())
            while True:
                self._check_refused()
                if self._answer is not None:
                    answer, self._answer = self._answer, None
                    return answer
                if self._must_wait and self.state.flights:
                    raise UsageError(
                        f"{len(self.state.flights)} batches were given and never finished: call done() on each batch"
                        + (" after push()" if self.state.has_servers else "")
                    )
                self._wait(began_s, budget_s)

    def wait_for_route(self, *, budget_s: float) -> UseRoute:
        """Waits for the routing table.  Raises as `next_batch`."""
        began_s = monotonic()
        with self._lock:
            while self.route is None:
                self._check_refused()
                self._wait(began_s, budget_s)
            return self.route

    def wait_until_joined(self, *, budget_s: float) -> None:
        """Waits until a master has given this trainer a rank.  Raises as `next_batch`."""
        began_s = monotonic()
        with self._lock:
            while not self._is_placed:
                self._check_refused()
                self._wait(began_s, budget_s)

    def wait_for_change(self, timeout_s: float) -> None:
        """Waits until the state changes or this time has passed.  Raises GracePeriodExpired."""
        self._check_alive()
        with self._lock:
            self._check_time()
            self._changed.wait(timeout_s)

    def _wait(self, began_s: float, budget_s: float) -> None:
        """Waits for a change, in short pauses so that signals and the budget's end are seen."""
        self._check_alive()
        self._check_time()
        if self._disconnected_since_s is not None and monotonic() - max(began_s, self._disconnected_since_s) > budget_s:
            raise MasterUnavailableError(
                f"no master of this job could be reached for {budget_s:g} s ({self._disconnect_reason}). "
                "Is the job's master running, is EDL_MASTER its address, and does EDL_TLS_DIR hold for both sides?"
            )
        self._changed.wait(timeout=0.5)

    def _check_time(self) -> None:
        if self._is_time_up:
            raise GracePeriodExpired

    def _check_refused(self) -> None:
        if self._complaint:
            raise UsageError(self._complaint)

    def is_in_hand(self, flight: int) -> bool:
        """True if the gradient of this flight still counts."""
        return any(f.number == flight for f in self.state.flights)

    @property
    def lineage(self) -> Lineage:
        return self.state.lineage

    # ---- the clock's side -------------------------------------------------------------------------------------------

    def report_with(self, report: Callable[[], ReportDue]) -> None:
        """Sends this report regularly from now on."""
        self._report = report
        self.stream.after(self._report_every_s, self._report_now)

    def _report_now(self) -> None:
        self.handle(self._report())
        if self.state.phase is not TrainerPhase.LEFT:
            self.stream.after(self._report_every_s, self._report_now)

    def drain(self, *, deadline_s: float, reason: str) -> None:
        """Drains: the batch in hand may be finished until the deadline.  Safe in a signal handler."""
        self.stream.post(lambda: self._drain(deadline_s, reason))

    @property
    def is_draining(self) -> bool:
        return self.state.is_draining

    def script_failed(self, message: str, *, is_misuse: bool) -> None:  # noqa: ARG002  of a group alone
        """Tells the master that the script raised (M4)."""
        self.handle(ScriptFailed(message=message))

    def final_hook_done(self) -> None:
        """Tells the master that the final hook has run here."""
        self.handle(FinalHookRun())

    def leave(self, reason: str, *, farewell_s: float) -> None:
        """Returns what is in hand, and says goodbye to the master for at most so long."""
        self.handle(LeaveRequested(reason=reason))
        self.stream.close(farewell_s=farewell_s)

    def when_time_is_up(self, action: Callable[[], None]) -> None:
        """Calls `action` at the drain deadline, or now if that has passed, in any thread."""
        with self._lock:
            self._at_time_up.append(action)
            is_late = self._is_time_up
        if is_late:
            action()

    def _drain(self, deadline_s: float, reason: str) -> None:
        self.handle(DrainRequested(reason=reason))
        self.stream.after(deadline_s, self._end_drain)

    def _end_drain(self) -> None:
        """Returns unconfirmed positions, never acked (rule 13), and ends every wait of the script."""
        with self._lock:
            self._feed(DrainDeadlinePassed())
            self._is_time_up = True
            self._changed.notify_all()
            actions = tuple(self._at_time_up)
        for action in actions:
            action()

    # ---- the channel's side: Listener -------------------------------------------------------------------------------

    def stream_opened(self) -> None:
        self.handle(MasterStreamOpened())

    def stream_broken(self, reason: str) -> None:
        with self._lock:
            self._disconnected_since_s = self._disconnected_since_s or monotonic()
            self._disconnect_reason = reason
            self._feed(MasterStreamBroken())

    def refused(self, reason: str) -> None:
        with self._lock:
            self._complaint = f"the master refuses this trainer: {reason}"
            self._changed.notify_all()

    def received(self, messages: tuple[MasterMessage, ...]) -> None:
        for message in messages:
            if isinstance(message, Registered):
                self._disconnected_since_s = None
                self._report_every_s = max(0.05, message.report_every_s)
            if isinstance(message, Drain):
                self.stream.after(message.deadline_s, self._end_drain)
            self.handle(cast(ToTrainer, message))
