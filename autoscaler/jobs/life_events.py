"""Events and effects of a job's life, as `lifecycle` takes and returns them.  Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain import Role


class FailureReason(StrEnum):
    """Reason for which a job was given up: that of its condition Failed."""

    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    ETCD_BOUND_EXCEEDED = "EtcdBoundExceeded"
    GIVEN_UP = "GivenUp"  # its master found another reason
    NO_SESSION = "NoSession"  # its script ended with 0, and no trainer had ever registered with its master


# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEnded:
    """A trainer ended on its own and the reason is not known yet; no replacement is created until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFailed:
    """A trainer ended unasked.  `exit_description` is for the user: how it ended, and the last lines of its log."""

    pod: str
    exit_description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRefused:
    """A trainer ended that its master had refused beside others, which train on.  `reason`: the master's words."""

    pod: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesCompleted:
    """Batches have been completed since the last observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReached:
    """The master says END: everything is trained and committed, apart from `quarantined` positions.

    `trained_text` says so to people; `is_stopped`: the script ended training before the last step.
    """

    trained_text: str = "every sample was trained and committed"
    is_stopped: bool = False
    quarantined: int = 0
    is_model_kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The job cannot go on: its master has failed it, it stored too much in etcd, or its script is none of a job."""

    reason: FailureReason = FailureReason.GIVEN_UP
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequested:
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRequested:
    """The user has deleted the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsObserved:
    """The roles that still have pods.  Comes with every change of the job's pods and with the passing of time."""

    roles: frozenset[Role]


LifeEvent = (
    TrainerEnded
    | TrainerFailed
    | TrainerRefused
    | BatchesCompleted
    | EndReached
    | GivenUp
    | SuspendRequested
    | DeletionRequested
    | PodsObserved
)

# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """An event for the user."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteJob:
    """Delete the TrainingJob: its time to live after the end is over, or a user has deleted it."""


LifeEffect = Announce | DeleteJob
