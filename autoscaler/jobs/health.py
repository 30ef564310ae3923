"""Whether a job trains, and whether its checkpoints go through: two verdicts, out of what its master says or does not.

They are two because they cost different things.  While commits fail training goes on, and nothing is lost but if
servers are: somebody who restarts such a job loses what its last checkpoint lacks.  Each message says whether training
goes on, what it costs while it lasts and what to do; no message has a number that moves, each would be news.

Pure, and the same on Kubernetes (`operator.verdicts`) and on this machine (`clusters.local.objects`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.jobs.answers import MalformedAnswer, NoAnswer, NoProgress
from autoscaler.jobs.progress import JobProgress
from master.api.status import TRAINING_PHASES, JobPhase

QUIET_LIMIT_S: Final = 15.0
"""A master that answered and does not for so long is told of: longer than another one takes to lead (M5)."""

OVERDUE_INTERVALS: Final = 10
"""So many times `checkpoint.everySeconds` without a commit, while samples are trained, are too long."""

_LEAVE_ALONE: Final = "leave trainers and servers alone, they have what no checkpoint has"
_LOOK_AT_MASTER: Final = "see the master's pod and its log (edl logs tj/NAME --master)"
_SINCE_LAST: Final = (
    f"Were servers lost or the job suspended now, what was trained since the last checkpoint would be trained again: "
    f"{_LEAVE_ALONE}"
)


class Why(StrEnum):
    """The reasons of both verdicts, as conditions bear them; phases of a master have reasons of their own name."""

    TRAINING = "Training"
    PROBLEM = "Problem"
    STARTING = "Starting"
    WAITING_FOR_SERVERS = "WaitingForServers"
    RESTORING = "Restoring"
    COMPLETE = "Complete"
    FAILED = "Failed"
    NO_ANSWER = "NoAnswer"
    MASTER_SILENT = "MasterSilent"
    NO_LEADER = "NoLeader"
    MALFORMED_ANSWER = "MalformedAnswer"
    UP_TO_DATE = "UpToDate"
    COMMIT_FAILS = "CommitFails"
    STORE_AWAY = "StoreAway"
    OVERDUE = "Overdue"


URGENT: Final = frozenset(
    {Why.PROBLEM, Why.MASTER_SILENT, Why.NO_LEADER, Why.MALFORMED_ANSWER, Why.WAITING_FOR_SERVERS, Why.RESTORING}
    | {Why.COMMIT_FAILS, Why.STORE_AWAY, Why.OVERDUE}
)
"""What matters more than a job's size; a start is no trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`holds`: True, False, or None where nobody knows."""

    holds: bool | None
    why: Why
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What is known of a job's master.  `progress`: its last answer since the job's start, if any.

    `quiet`: what came in place of an answer, once it is to be told (`lasting`); `since`: for how long, in words.
    """

    progress: JobProgress | None
    quiet: NoAnswer | None = None
    since: str = ""
    is_overdue: bool = False


_PHASES: Final = {
    JobPhase.STARTING: (Why.STARTING, "no trainer has declared yet what is to be trained"),
    JobPhase.WAITING_FOR_SERVERS: (Why.WAITING_FOR_SERVERS, "trainers wait until enough parameter servers are there"),
    JobPhase.RESTORING: (Why.RESTORING, "trainers wait while parameter servers load the last checkpoint"),
    JobPhase.COMPLETE: (Why.COMPLETE, "every sample is trained and committed"),
    JobPhase.FAILED: (Why.FAILED, "its master has given it up"),
}


def training(heard: Heard) -> Verdict:
    """Whether samples are trained now."""
    if (quiet := _quiet(heard)) is not None:
        return quiet
    progress = heard.progress
    assert progress is not None
    if progress.problem:
        tries = "it is tried again by itself, where a checkpoint cannot be read for a minute"
        told = f"nothing is trained until this is over; {tries}: {progress.problem}"
        return Verdict(holds=False, why=Why.PROBLEM, message=told)
    if progress.phase in TRAINING_PHASES:
        return Verdict(holds=True, why=Why.TRAINING, message=f"the master says: {progress.phase}")
    why, told = _PHASES[progress.phase]
    return Verdict(holds=False, why=why, message=told)


def committing(heard: Heard) -> Verdict:
    """Whether what is trained comes into checkpoints."""
    if (quiet := _quiet(heard)) is not None:
        return quiet
    progress = heard.progress
    assert progress is not None
    if progress.store_problem:
        told = f"{_SINCE_LAST}. Bring etcd back, the rest follows by itself: {progress.store_problem}"
        return Verdict(holds=False, why=Why.STORE_AWAY, message=f"training goes on, checkpoints wait. {told}")
    if progress.checkpoint_problem:
        goes_on = "training goes on, " if progress.phase in TRAINING_PHASES else ""
        told = f"{goes_on}commits fail and are tried again by themselves, at least every 30 s. {_SINCE_LAST}"
        return Verdict(holds=False, why=Why.COMMIT_FAILS, message=f"{told}. Mend this: {progress.checkpoint_problem}")
    if heard.is_overdue:
        told = f"no commit fails, and none came for {OVERDUE_INTERVALS} times checkpoint.everySeconds. {_SINCE_LAST}"
        return Verdict(holds=False, why=Why.OVERDUE, message=f"{told}; {_LOOK_AT_MASTER}")
    return Verdict(holds=True, why=Why.UP_TO_DATE, message="commits go through")


def uncommitted_since_s(progress: JobProgress | None, *, started_at_s: float, checkpoint_at_s: float) -> float | None:
    """Since when what is trained is in no checkpoint: the last one, or the job's start or resume where that is later.

    None: all that was trained is in one.  `progress`: None where no master has answered; `checkpoint_at_s`: -inf
    where nobody knows of a checkpoint.
    """
    if progress is not None and progress.done <= progress.committed:
        return None
    return max(started_at_s, checkpoint_at_s)


def lasting(quiet: NoAnswer | None, for_s: float) -> NoAnswer | None:
    """What is told of a master that gives no status: an answer that cannot be read at once, silence if it lasts."""
    return quiet if isinstance(quiet, MalformedAnswer) or for_s >= QUIET_LIMIT_S else None


def _quiet(heard: Heard) -> Verdict | None:
    if isinstance(heard.quiet, MalformedAnswer):
        told = f"its master's answer is not taken, so whether it trains is not known: {heard.quiet.problem}"
        return Verdict(
            holds=None, why=Why.MALFORMED_ANSWER, message=f"{told}; compare the versions of EDL in its image"
        )
    if heard.progress is None:
        told = f"its master has not answered yet, and nothing is trained before; if that lasts, {_LOOK_AT_MASTER}"
        return Verdict(holds=None, why=Why.NO_ANSWER, message=told)
    if heard.quiet is NoProgress.REFUSED:
        told = (
            f"its masters answer {heard.since}, and none leads: etcd is away or slow. Trainers finish what they hold "
            f"and wait then, nothing is committed; {_LEAVE_ALONE}. Look at etcd, and at the master's log"
        )
        return Verdict(holds=None, why=Why.NO_LEADER, message=told)
    if heard.quiet is NoProgress.SILENT:
        told = (
            f"its master has not answered {heard.since}: cut off, it goes on with all it does; gone, trainers finish "
            f"what they hold and wait then, and nothing is committed; {_LEAVE_ALONE}, and {_LOOK_AT_MASTER}"
        )
        return Verdict(holds=None, why=Why.MASTER_SILENT, message=told)
    return None
