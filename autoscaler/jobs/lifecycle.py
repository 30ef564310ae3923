"""State machine of one job's life: when it has failed, when it is complete, in which order its pods stop.  Pure.

`handle(life, event, now_s) -> LifeTransition(life, effects)`.  Effects are events for users, and the permission to
delete the object; which pods must stop is read from the life itself (`Life.leaving_roles`).  The planner sees only
`Life.state`: ENDING means that pods leave by themselves, OVER that the job needs no pods any more.

A *failure* is a trainer that ends without having been terminated by EDL, the cluster or a user.  `backoffLimit`
failures in a row, without one batch completed between them, fail the job.  A completed batch starts the count afresh,
so a job that makes progress is never failed by kills from outside.

Two count against that limit.  `_count_failure` here counts every trainer that ended unasked; the job's master
(`master.job.trainers.trainer_loss.handle_failed`, of a group `master.group.suspects.handle_failed`) counts scripts that
raised.  Whichever reaches the limit first fails the job.  The master is polled before an end is counted here, so for a
script that raises while it trains the master's verdict usually comes first, as `GivenUp`.  Kills, exits without an
exception and scripts that raise before they have connected are counted here alone.  A trainer that its master refused
while others train, for its script is another one, is counted by neither: new trainers pause for longer and longer.  A
script that fails after the end has lost no training: its job completes, and says so (`SCRIPT_FAILED`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from autoscaler.domain import JobState, Role
from autoscaler.jobs.life_events import (
    Announce,
    BatchesCompleted,
    DeleteJob,
    DeletionRequested,
    EndReached,
    FailureReason,
    GivenUp,
    LifeEffect,
    LifeEvent,
    PodsObserved,
    SuspendRequested,
    TrainerEnded,
    TrainerFailed,
    TrainerRefused,
)
from autoscaler.jobs.restart_policy import LONGEST_REFUSED_PAUSE_S, pause_s, refused_pause_s
from autoscaler.manifests.api_types import RunPolicy

FINISHING_S: Final = 60.0
"""Time that trainers get to end by themselves after the data's end (a final-save hook may run); then they are
terminated.
"""

DIAGNOSIS_LIMIT_S: Final = 2.0
"""Time limit for finding out why a trainer ended; the job's master is polled once more."""

FORGOTTEN_AFTER_S: Final = 2 * LONGEST_REFUSED_PAUSE_S
"""After so long without one more refusal the next one is the first again."""

MOST_REASON: Final = 200
"""Characters of a refusal that a decision on the job's size repeats; the event has all of it."""

STOP_ORDER: Final = (Role.TRAINER, Role.SERVER, Role.MASTER)


class LifeStage(StrEnum):
    ACTIVE = "active"
    SUSPENDING = "suspending"  # trainers finish their batches, then servers leave while the master still stands
    SUSPENDED = "suspended"
    FINISHING = "finishing"  # END was reached: trainers are leaving by themselves
    STOPPING = "stopping"  # pods are terminated: trainers first, the master last
    OVER = "over"


_BEFORE_THE_END: Final = frozenset({LifeStage.ACTIVE, LifeStage.SUSPENDING, LifeStage.SUSPENDED})


class JobEnding(StrEnum):
    """Ending of a job; also the names of its conditions."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    DELETED = "Deleted"


class CompletionReason(StrEnum):
    """Outcome of a job that has ended well: the reason of its condition Completed."""

    ALL_TRAINED = "AllTrained"
    STOPPED_EARLY = "StoppedEarly"  # by its script
    SCRIPT_FAILED = "ScriptFailed"  # everything is committed, and what a script did after the end raised
    NO_MODEL_KEPT = "NoModelKept"  # it shared out records only: no parameter servers, no model of the script's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Life of one job.  `advances` counts observations that showed newly completed batches."""

    policy: RunPolicy
    stage: LifeStage = LifeStage.ACTIVE
    ending: JobEnding | None = None
    failure_reason: FailureReason = FailureReason.GIVEN_UP  # of an ending FAILED
    completion_reason: CompletionReason = CompletionReason.ALL_TRAINED  # of an ending COMPLETED
    message: str = ""
    started_at_s: float | None = None  # instant of its first pods; reset when it is suspended
    ended_at_s: float | None = None  # when `ending` was decided
    finishing_until_s: float = 0.0
    failures: int = 0  # in a row
    advances: int = 0
    advances_at_failure: int = 0
    hold_until_s: float = 0.0
    hold_reason: str = ""  # of a pause that follows no failure
    refusals: int = 0  # of trainers beside others that train, in a row
    refused_at_s: float = 0.0
    stopped_role_count: int = 0  # how many roles of STOP_ORDER have been told to leave

    @property
    def needs_model(self) -> bool:
        """True if the job trains now or will after a resume, so that a loss of its model matters."""
        return self.stage in _BEFORE_THE_END

    @property
    def leaving_roles(self) -> frozenset[Role]:
        """Roles whose pods must be deleted now; the planner deletes the remaining pods of a suspended job."""
        match self.stage:
            case LifeStage.SUSPENDING | LifeStage.STOPPING:
                return frozenset(STOP_ORDER[: self.stopped_role_count])
            case LifeStage.OVER:
                return frozenset(STOP_ORDER)
            case _:
                return frozenset()

    @property
    def state(self) -> JobState:
        """State of the job for the planner."""
        match self.stage:
            case LifeStage.ACTIVE:
                return JobState.ACTIVE
            case LifeStage.SUSPENDED:
                return JobState.SUSPENDED
            case LifeStage.SUSPENDING | LifeStage.FINISHING | LifeStage.STOPPING:
                return JobState.ENDING
            case LifeStage.OVER:
                return JobState.OVER
            case _:
                assert_never(self.stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeTransition:
    life: Life
    effects: tuple[LifeEffect, ...] = ()


def handle(life: Life, event: LifeEvent, now_s: float) -> LifeTransition:
    """Return the life after the event, and the effects.

    Events of a job that has ended change nothing more.
    """
    match event:
        case TrainerEnded():
            return LifeTransition(life=replace(life, hold_until_s=max(life.hold_until_s, now_s + DIAGNOSIS_LIMIT_S)))
        case TrainerFailed():
            return _handle_trainer_failure(life, event, now_s)
        case TrainerRefused():
            return _count_refusal(life, event, now_s) if life.stage is LifeStage.ACTIVE else LifeTransition(life=life)
        case BatchesCompleted():
            return LifeTransition(life=replace(life, advances=life.advances + 1))
        case EndReached():
            return _begin_finishing(life, event, now_s) if life.stage in _BEFORE_THE_END else LifeTransition(life=life)
        case GivenUp():
            return _fail(life, event.reason, event.message, now_s) if life.ending is None else LifeTransition(life=life)
        case SuspendRequested():
            return _suspend(life, event) if life.stage in _BEFORE_THE_END else LifeTransition(life=life)
        case DeletionRequested():
            return _delete(life, now_s)
        case PodsObserved():
            return _observe_pods(life, event.roles, now_s)
        case _:
            assert_never(event)


def _handle_trainer_failure(life: Life, event: TrainerFailed, now_s: float) -> LifeTransition:
    match life.stage:
        case LifeStage.ACTIVE:
            return _count_failure(life, event, now_s)
        case LifeStage.FINISHING if life.completion_reason is not CompletionReason.SCRIPT_FAILED:
            message = f"after the end trainer {event.pod} {event.exit_description}"
            life = replace(
                life, completion_reason=CompletionReason.SCRIPT_FAILED, message=f"{life.message}; but {message}"
            )
            return LifeTransition(life=life, effects=(Announce(reason="TrainerFailed", message=message),))
        case _:
            return LifeTransition(life=life)


def _count_failure(life: Life, event: TrainerFailed, now_s: float) -> LifeTransition:
    """Count a trainer's unasked end; the module's head says who else counts."""
    failures = life.failures + 1 if life.advances == life.advances_at_failure else 1
    limit = max(1, life.policy.backoff_limit)
    life = replace(life, failures=failures, advances_at_failure=life.advances)
    message = f"trainer {event.pod} {event.exit_description}"
    if failures >= limit:
        counted = "1 trainer failure" if failures == 1 else f"{failures} trainer failures in a row"
        why = f"{counted} without one batch completed (backoffLimit {limit}); the last: {message}"
        return _fail(life, FailureReason.BACKOFF_LIMIT_EXCEEDED, why, now_s)
    pause = pause_s(failures)
    following = "at once" if pause == 0 else f"in {pause:.0f} s"
    counted = "1 failure" if failures == 1 else f"{failures} failures"
    outlook = f"{counted} since a trainer of this job last completed a batch, and {limit} fail the job (backoffLimit)"
    outlook = f"{outlook}; a new trainer starts {following}"
    announced = Announce(reason="TrainerFailed", message=f"{message}\n{outlook}")
    return LifeTransition(life=replace(life, hold_until_s=now_s + pause, hold_reason=""), effects=(announced,))


def _count_refusal(life: Life, event: TrainerRefused, now_s: float) -> LifeTransition:
    """Pause new trainers: they are of the same template, so the next one would be refused as well."""
    is_in_a_row = life.refusals > 0 and now_s - life.refused_at_s <= FORGOTTEN_AFTER_S
    refusals = 1 + (life.refusals if is_in_a_row else 0)
    pause = refused_pause_s(refusals)
    message = (
        f"trainer {event.pod} is refused, and the others train on: {event.reason}\n"
        f"it does not count against backoffLimit; a new trainer starts in {pause:.0f} s"
    )
    life = replace(
        life,
        refusals=refusals,
        refused_at_s=now_s,
        hold_until_s=max(life.hold_until_s, now_s + pause),
        hold_reason=f"pause after trainer {event.pod} was refused: {_first_words(event.reason)}",
    )
    return LifeTransition(life=life, effects=(Announce(reason="TrainerRefused", message=message),))


def _first_words(text: str) -> str:
    """Beginning of a text, in one line, for a place with room for no more."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_REASON else f"{line[:MOST_REASON]} ..."


def _begin_finishing(life: Life, event: EndReached, now_s: float) -> LifeTransition:
    message = event.trained_text
    if event.quarantined:
        message += f", but for {event.quarantined} in quarantine: trainers failed on them (edl data audit lists them)"
    reason = CompletionReason.STOPPED_EARLY if event.is_stopped else CompletionReason.ALL_TRAINED
    if not event.is_model_kept:
        reason = CompletionReason.NO_MODEL_KEPT
        message += "; no model is kept: the job has no parameter servers, and is no group"
    life = replace(
        life,
        stage=LifeStage.FINISHING,
        finishing_until_s=now_s + FINISHING_S,
        completion_reason=reason,
        message=message,
    )
    return LifeTransition(life=life, effects=(Announce(reason="EndReached", message=message),))


def _fail(life: Life, reason: FailureReason, message: str, now_s: float) -> LifeTransition:
    return _end(replace(life, failure_reason=reason), JobEnding.FAILED, message, now_s)


def _end(life: Life, ending: JobEnding, message: str, now_s: float) -> LifeTransition:
    life = replace(
        life, stage=LifeStage.STOPPING, ending=ending, message=message, ended_at_s=now_s, stopped_role_count=1
    )
    return LifeTransition(life=life, effects=(Announce(reason=ending, message=message),))


def _suspend(life: Life, event: SuspendRequested) -> LifeTransition:
    if event.on is (life.stage is not LifeStage.ACTIVE):
        return LifeTransition(life=life)
    if event.on:
        suspended = Announce(reason="Suspended", message="trainers finish their batches, then all pods are terminated")
        return LifeTransition(
            life=replace(life, stage=LifeStage.SUSPENDING, stopped_role_count=1), effects=(suspended,)
        )
    resumed = Announce(reason="Resumed", message="the job waits for capacity for its minimum")
    started_at_s = None if life.stage is LifeStage.SUSPENDED else life.started_at_s
    return LifeTransition(life=replace(life, stage=LifeStage.ACTIVE, started_at_s=started_at_s), effects=(resumed,))


def _delete(life: Life, now_s: float) -> LifeTransition:
    if life.stage is LifeStage.OVER:
        return LifeTransition(life=replace(life, ending=JobEnding.DELETED), effects=(DeleteJob(),))
    if life.stage is LifeStage.STOPPING:
        return LifeTransition(life=replace(life, ending=JobEnding.DELETED, message="a user deleted the job"))
    return _end(life, JobEnding.DELETED, "a user deleted the job", now_s)


def _observe_pods(life: Life, roles: frozenset[Role], now_s: float) -> LifeTransition:
    if life.started_at_s is None and roles:
        life = replace(life, started_at_s=now_s)
    deadline_s = _deadline_s(life)
    if life.stage is LifeStage.ACTIVE and deadline_s is not None and now_s >= deadline_s:
        why = f"activeDeadlineSeconds {life.policy.active_deadline_s:.0f} have passed since its start"
        return _fail(life, FailureReason.DEADLINE_EXCEEDED, why, now_s)
    match life.stage:
        case LifeStage.ACTIVE | LifeStage.SUSPENDED:
            return LifeTransition(life=life)
        case LifeStage.SUSPENDING:
            return _suspend_next(life, roles)
        case LifeStage.FINISHING:
            if Role.TRAINER in roles and now_s < life.finishing_until_s:
                return LifeTransition(life=life)
            return _end(life, JobEnding.COMPLETED, life.message, now_s)
        case LifeStage.STOPPING:
            return _stop_next(life, roles)
        case LifeStage.OVER:
            expiry_s = _expiry_s(life)
            is_expired = expiry_s is not None and now_s >= expiry_s
            return LifeTransition(life=life, effects=(DeleteJob(),) if is_expired else ())
        case _:
            assert_never(life.stage)


def _suspend_next(life: Life, roles: frozenset[Role]) -> LifeTransition:
    """Stop trainers, then servers.  The planner ends the master, which commits what was trained last."""
    if Role.TRAINER in roles:
        return LifeTransition(life=life)
    if Role.SERVER in roles:
        return LifeTransition(life=replace(life, stopped_role_count=2))
    return LifeTransition(life=replace(life, stage=LifeStage.SUSPENDED))


def _stop_next(life: Life, roles: frozenset[Role]) -> LifeTransition:
    """Stop the next role: trainers first, then servers, the master last, so that each can still hand over its work."""
    stopped = life.stopped_role_count
    while stopped < len(STOP_ORDER) and not roles.intersection(STOP_ORDER[:stopped]):
        stopped += 1
    life = replace(life, stopped_role_count=stopped)
    if roles:
        return LifeTransition(life=life)
    is_deleted = life.ending is JobEnding.DELETED
    return LifeTransition(life=replace(life, stage=LifeStage.OVER), effects=(DeleteJob(),) if is_deleted else ())


def _deadline_s(life: Life) -> float | None:
    if life.policy.active_deadline_s is None or life.started_at_s is None:
        return None
    return life.started_at_s + life.policy.active_deadline_s


def _expiry_s(life: Life) -> float | None:
    if life.stage is not LifeStage.OVER or life.policy.ttl_after_finished_s is None or life.ended_at_s is None:
        return None
    return life.ended_at_s + life.policy.ttl_after_finished_s
