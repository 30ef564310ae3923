"""Shell of a group member's core: events go in from any thread, effects come out on the stream and the collectives.

One lock guards the state; the thread that brings an event handles it, and carries its effects out before it returns.  A
message of the master aborts the collective in hand at once.  Not here: what the state asks of the script's thread
(`replica_work`, `member_runtime`), and the state's rules (`core.transitions`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Final, assert_never, cast

from master.api.identities import ManifestId
from master.api.messages.generations import LeaveRequest, ReplicaRegistered
from master.api.messages.to_members import MasterMessage, OfferAnswered, ToReplica
from trainer_sdk.collective import CollectiveAborted, CollectiveListener, HostCollective
from trainer_sdk.errors import MasterUnavailableError, StepAborted, WireError
from trainer_sdk.group.collectives import GroupCollectives
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CloseGroup,
    ConnectGroup,
    ContributeWord,
    DrainAsked,
    GroupConnected,
    GroupEffect,
    GroupEvent,
    GroupFailed,
    RefuseScript,
    StreamClosed,
    StreamOpened,
    TellMaster,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState
from trainer_sdk.group.core.transitions import handle_member, leave_job
from trainer_sdk.group.step_times import StepTimes
from trainer_sdk.master_stream import MasterAddress, MasterStream

FIRST_REPORT_S: Final = 1.0
WAIT_S: Final = 0.5  # between two looks at whether the master can be reached


class MemberShell:
    """The member's state, its stream and its collectives.  Methods may be called from any thread; `leave` in any case.

    `changed` guards `state` and the attributes below it, and is notified after every event.
    """

    def __init__(
        self,
        state: MemberState,
        *,
        listener: CollectiveListener,
        master: MasterAddress,
        master_budget_s: float,
        check_alive: Callable[[], None],
    ) -> None:
        """Connects to the master from now on; see `MemberRuntime`."""
        self.changed: Final = threading.Condition(threading.RLock())
        self.state = state
        self.complaint = ""  # why the script cannot go on, as the master or the core has said it
        self.manifest: ManifestId | None = None  # of the newest checkpoint that this process has offered
        self.refusal = ""  # of the one that failed last
        self.refused_files: tuple[str, ...] = ()  # of copies that the master refused, and nobody offers again
        self.metrics: Mapping[str, float] = {}
        self.times: Final = StepTimes()
        self._groups = GroupCollectives(listener)
        self._master_budget_s, self._check_alive = master_budget_s, check_alive
        self._apart_since_s: float | None = monotonic()
        self._apart_reason = "no answer yet"
        self._report_every_s = FIRST_REPORT_S
        self._grace_ends_s = inf  # once this process is to leave
        self._is_closed = False
        self.stream: Final = MasterStream(self)
        self.stream.connect(master)
        self.stream.after(self._report_every_s, self._report)

    # ---- events in, effects out -------------------------------------------------------------------------------------

    def handle(self, event: GroupEvent) -> tuple[GroupEffect, ...]:
        """Handles the event and performs its effects, which are returned too: `ContributeWord` is the caller's."""
        with self.changed:
            if isinstance(event, DrainAsked):
                self._grace_ends_s = monotonic() + event.grace_s
            step = handle_member(self.state, event)
            self.state = step.state
            self._perform(step.effects)
            self.changed.notify_all()
            return step.effects

    def _perform(self, effects: tuple[GroupEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case TellMaster(message=LeaveRequest() as message):
                    left_s = max(0.0, self._grace_ends_s - monotonic())
                    self.stream.send((replace(message, grace_s=min(message.grace_s, left_s)),))
                case TellMaster(message=message):
                    self.stream.send((message,))
                case ConnectGroup(record=record):
                    self._groups.connect(
                        record,
                        self.state.incarnation,
                        connected=lambda number: self.handle(GroupConnected(number=number)),
                        failed=lambda number: self.handle(GroupFailed(number=number)),
                    )
                case AbortGroup(number=number):
                    self._groups.abort(number, "the generation was left")
                case CloseGroup(number=number):
                    self._groups.close_group(number)
                case RefuseScript(field=field, message=message):
                    self.complaint = f"{field}: {message}"
                case ContributeWord():
                    continue  # by the script's thread
                case _:
                    assert_never(effect)

    def leave(self, reason: str, *, farewell_s: float) -> None:
        """Says goodbye to the master, for so long, and to the members.  A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._perform(leave_job(reason))
        self._groups.close()
        self.stream.close(farewell_s=farewell_s)

    # ---- what the script's thread waits for -------------------------------------------------------------------------

    def group(self, number: int) -> HostCollective:
        """The collective of this generation.  Raises CollectiveAborted once the generation is left."""
        group = self._groups.get(number)
        if group is None:
            raise CollectiveAborted(f"generation {number} was left")
        return group

    @contextmanager
    def collective(self, number: int) -> Iterator[None]:
        """Within it the script waits in a collective of this generation; its failure is a StepAborted."""
        try:
            with self.times.reducing():
                yield
        except (CollectiveAborted, WireError) as error:
            self.handle(GroupFailed(number=number))
            raise StepAborted(str(error)) from error

    def wait(self, began_s: float) -> None:
        """Waits for a change, not for long; holds `changed`.

        Raises MasterUnavailableError when no master has answered for the budget since `began_s`.
        """
        self._check_alive()
        apart_s, budget_s = self._apart_since_s, self._master_budget_s
        if apart_s is not None and monotonic() - max(began_s, apart_s) > budget_s:
            raise MasterUnavailableError(
                f"no master of this job could be reached for {budget_s:g} s ({self._apart_reason}). "
                "Is the job's master running, is EDL_MASTER its address, and does EDL_TLS_DIR hold for both sides?"
            )
        self.changed.wait(timeout=WAIT_S)

    # ---- reports ----------------------------------------------------------------------------------------------------

    def tell_ready(self) -> None:
        """Reports now if this member is in no generation: it is listed once its script asks for a step (rule 75)."""
        with self.changed:
            if self.state.phase is MemberPhase.OUT:
                self._tell_progress()

    def _tell_progress(self) -> None:
        with self.changed:
            self.handle(self.times.report(self.metrics))

    def _report(self) -> None:
        self._tell_progress()
        if not self._is_closed:
            self.stream.after(self._report_every_s, self._report)

    # ---- the stream's side: StreamListener --------------------------------------------------------------------------

    def stream_opened(self) -> None:
        self.handle(StreamOpened())

    def stream_broken(self, reason: str) -> None:
        with self.changed:
            self._apart_since_s = self._apart_since_s or monotonic()
            self._apart_reason = reason
        self.handle(StreamClosed())

    def refused(self, reason: str) -> None:
        with self.changed:
            self.complaint = f"the master refuses this trainer: {reason}"
            self.changed.notify_all()

    def _answered(self, message: OfferAnswered) -> None:
        with self.changed:
            self.manifest = message.manifest or self.manifest
            before = self.state.copy
            self.handle(message)
            if before is None or before.offer != message.offer:
                return  # an older offer's answer, which comes late
            self.refusal = message.reason
            if message.manifest is None and before.file is not None:
                self.refused_files = (*self.refused_files, before.file.name)

    def received(self, messages: tuple[MasterMessage, ...]) -> None:
        for message in messages:
            if isinstance(message, ReplicaRegistered):
                with self.changed:
                    self._apart_since_s = None
                self._report_every_s = max(0.05, message.report_every_s)
            if isinstance(message, OfferAnswered):
                self._answered(message)
                continue
            self.handle(cast(ToReplica, message))
            if isinstance(message, ReplicaRegistered):  # its registration does not say where its script is
                self._tell_progress()
