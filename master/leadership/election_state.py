"""Decisions of an election: when to campaign, renew, and stop acting as leader.  `election` carries them out.

The problem: the lease runs out by the store's clock, and a leader that is cut off or paused gets no notice.  So it
counts by its own clock, from the moment *before* it sent the last renewal that succeeded, and stops acting at the
renew deadline, before the lease can end:

    renewal sent ──── retry period ──── renew deadline ──── lease ttl
                      renews again      stops acting        another may lead

The timing rule lease ttl > renew deadline > retry period is checked where the timing is made.  It bounds fail-over
time (M5); correctness rests on the term in every transaction (`store.store_port`).

The only master of a job is another case: while the store is silent no other can lead, and stopping would stop the
training.  It keeps renewing and acting until the store reports the lease as gone; a lease that outlives the
silence keeps its term.  After a pause it renews before it acts.  Nothing is committed without the store, so
at worst that work is done again (rule 15, ADR 0401).

Instants are seconds of one monotonic clock.  Not here: any wait, any call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from master.errors import InvalidSettingError, InvariantViolationError
from master.leadership.election_events import (
    Campaign,
    CampaignEnded,
    CampaignWon,
    ElectionEffect,
    ElectionEvent,
    GiveBack,
    LeaderVanished,
    LeaseLost,
    LossReason,
    Renew,
    RenewFailed,
    RenewSucceeded,
    ResignRequested,
    StartLeading,
    StopLeading,
    Ticked,
)
from master.store.store_port import Leadership

RENEWAL_S: Final = 2.0  # until a renewal is answered or given up, an expired token included


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipTiming:
    """Timing of the leadership: lease_ttl_s > renew_deadline_s > retry_period_s > 0, else InvalidSettingError."""

    lease_ttl_s: int = 6  # etcd grants whole seconds, at least 2; a standby serves within this + 2 s (M5)
    renew_deadline_s: float = 4.0
    retry_period_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.retry_period_s > 0:
            raise InvalidSettingError(
                "leadership.retry_period_s", f"{self.retry_period_s} s is not a period", hint="Give it more than 0 s"
            )
        if not self.renew_deadline_s > self.retry_period_s:
            raise InvalidSettingError(
                "leadership.renew_deadline_s",
                f"{self.renew_deadline_s} s is not longer than retry_period_s, {self.retry_period_s} s",
                hint="Allow for two or three retries",
            )
        if not self.lease_ttl_s > self.renew_deadline_s:
            raise InvalidSettingError(
                "leadership.lease_ttl_s",
                f"{self.lease_ttl_s} s is not longer than renew_deadline_s, {self.renew_deadline_s} s",
                hint="A leader must stop before its lease ends",
            )


class ElectionRole(StrEnum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"  # a campaign is under way
    LEADER = "leader"
    RESIGNED = "resigned"  # does not campaign any more


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLeadership:
    leadership: Leadership
    held_since_s: float  # sent the last successful renewal, or the campaign
    unanswered_s: float | None = None  # sent the last renewal since then that was not answered
    is_renewing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    timing: LeadershipTiming
    is_alone: bool = False  # the job has no other master
    role: ElectionRole = ElectionRole.FOLLOWER
    leading: HeldLeadership | None = None  # exactly when role is LEADER
    next_try_s: float = 0.0  # of a campaign or of a renewal

    @property
    def stop_acting_s(self) -> float:
        """The instant from which this leader must not act; 0 when it does not lead."""
        if self.leading is None:
            return 0.0
        deadline_s = self.leading.held_since_s + self.timing.renew_deadline_s
        if not self.is_alone or self.leading.unanswered_s is None:
            return deadline_s
        return max(deadline_s, self.leading.unanswered_s + self.timing.retry_period_s + 2 * RENEWAL_S)

    def may_act(self, now_s: float) -> bool:
        """True if grants and answers may be given now; checked right before each, for a pause may just have ended."""
        return now_s < self.stop_acting_s


NOTHING: Final[tuple[ElectionEffect, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionStep:
    """The next state, what to do in this order, and when to tick at the latest."""

    state: ElectionState
    effects: tuple[ElectionEffect, ...] = NOTHING

    @property
    def wake_s(self) -> float | None:
        """Latest instant for Ticked; None: an answer comes first.  A renewal under way stops no deadline."""
        match self.state.role:
            case ElectionRole.FOLLOWER:
                return self.state.next_try_s
            case ElectionRole.LEADER:
                is_renewing = self.state.leading is not None and self.state.leading.is_renewing
                dues = [] if is_renewing else [self.state.next_try_s]
                return min(dues if self.state.is_alone else [*dues, self.state.stop_acting_s], default=None)
            case ElectionRole.CANDIDATE | ElectionRole.RESIGNED:
                return None
            case _:
                assert_never(self.state.role)


def handle(state: ElectionState, event: ElectionEvent, now_s: float) -> ElectionStep:
    """The state and effects after the event.  Answers to campaigns and renewals of a past term change nothing.

    Whatever the event: a leader past its renew deadline stops first, unless no other could lead.
    """
    is_late = state.leading is not None and not state.is_alone and not state.may_act(now_s)
    if is_late and not _extends(state, event, now_s):
        stopped = _stop(state, LossReason.NOT_RENEWED, now_s)
        after = _handle(stopped.state, event, now_s)
        return ElectionStep(state=after.state, effects=stopped.effects + after.effects)
    return _handle(state, event, now_s)


def _handle(state: ElectionState, event: ElectionEvent, now_s: float) -> ElectionStep:
    match event:
        case Ticked():
            return _tick(state, now_s)
        case CampaignWon():
            return _win(state, event, now_s)
        case CampaignEnded():
            waiting = replace(state, role=ElectionRole.FOLLOWER, next_try_s=now_s + state.timing.retry_period_s)
            return ElectionStep(state=waiting if state.role is ElectionRole.CANDIDATE else state)
        case LeaderVanished():
            return (
                _tick(replace(state, next_try_s=now_s), now_s)
                if state.role is ElectionRole.FOLLOWER
                else ElectionStep(state=state)
            )
        case RenewSucceeded() | RenewFailed() | LeaseLost():
            return _handle_renewal(state, event, now_s)
        case ResignRequested():
            stopped = _stop(state, LossReason.RESIGNED, now_s)
            return ElectionStep(state=replace(stopped.state, role=ElectionRole.RESIGNED), effects=stopped.effects)
        case _:
            assert_never(event)


def check(state: ElectionState) -> None:
    """Raises InvariantViolationError unless the role fits what is held."""
    if (state.role is ElectionRole.LEADER) != (state.leading is not None):
        raise InvariantViolationError(f"{state.role} with leading={state.leading}")


def _tick(state: ElectionState, now_s: float) -> ElectionStep:
    if now_s < state.next_try_s:
        return ElectionStep(state=state)
    match state.role:
        case ElectionRole.FOLLOWER:
            return ElectionStep(state=replace(state, role=ElectionRole.CANDIDATE), effects=(Campaign(),))
        case ElectionRole.LEADER if state.leading and not state.leading.is_renewing:
            renewing = replace(state.leading, is_renewing=True)
            return ElectionStep(
                state=replace(state, leading=renewing), effects=(Renew(leadership=state.leading.leadership),)
            )
        case ElectionRole.LEADER | ElectionRole.CANDIDATE | ElectionRole.RESIGNED:
            return ElectionStep(state=state)
        case _:
            assert_never(state.role)


def _win(state: ElectionState, event: CampaignWon, now_s: float) -> ElectionStep:
    """A win that came too late to act on, or after resigning, is given back."""
    won = HeldLeadership(leadership=event.leadership, held_since_s=event.sent_s)
    leader = replace(
        state, role=ElectionRole.LEADER, leading=won, next_try_s=event.sent_s + state.timing.retry_period_s
    )
    if state.role is ElectionRole.CANDIDATE and leader.may_act(now_s):
        return ElectionStep(state=leader, effects=(StartLeading(leadership=event.leadership),))
    follower = replace(state, role=ElectionRole.FOLLOWER, next_try_s=now_s + state.timing.retry_period_s)
    return ElectionStep(
        state=follower if state.role is ElectionRole.CANDIDATE else state,
        effects=(GiveBack(leadership=event.leadership),),
    )


def _handle_renewal(
    state: ElectionState, event: RenewSucceeded | RenewFailed | LeaseLost, now_s: float
) -> ElectionStep:
    leading = state.leading
    if leading is None or leading.leadership != event.leadership:
        return ElectionStep(state=state)
    next_try_s = now_s + state.timing.retry_period_s
    match event:
        case RenewSucceeded():
            held = HeldLeadership(leadership=leading.leadership, held_since_s=max(event.sent_s, leading.held_since_s))
            return ElectionStep(state=replace(state, leading=held, next_try_s=next_try_s))
        case RenewFailed():
            unanswered = replace(leading, unanswered_s=event.sent_s, is_renewing=False)
            return ElectionStep(state=replace(state, leading=unanswered, next_try_s=next_try_s))
        case LeaseLost():
            return _stop(state, event.reason, now_s)
        case _:
            assert_never(event)


def _stop(state: ElectionState, reason: LossReason, now_s: float) -> ElectionStep:
    if state.leading is None:
        return ElectionStep(state=state)
    leadership = state.leading.leadership
    follower = replace(state, role=ElectionRole.FOLLOWER, leading=None, next_try_s=now_s + state.timing.retry_period_s)
    return ElectionStep(
        state=follower,
        effects=(StopLeading(leadership=leadership, reason=reason), GiveBack(leadership=leadership)),
    )


def _extends(state: ElectionState, event: ElectionEvent, now_s: float) -> bool:
    """True if a renewal whose answer arrives late still holds the lease: it was sent late enough."""
    return (
        isinstance(event, RenewSucceeded)
        and state.leading is not None
        and event.leadership == state.leading.leadership
        and now_s < event.sent_s + state.timing.renew_deadline_s
    )
