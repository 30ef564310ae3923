"""Health of a job: whether it trains, and whether its checkpoints go through, from what its master says.

The two are separate conditions, since they have different costs.  While commits fail, training continues and nothing
is lost; restarting the job then loses all work since its last checkpoint.  Each message states whether training
continues, what that costs and what to do.  Messages contain no changing numbers, since each change would be a new
event.

Pure.  `operator.status` shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from autoscaler.jobs.progress import JobProgress, MalformedAnswer, MissingAnswer, WhyNoAnswer
from autoscaler.jobs.standstill import is_standstill_told, standstill_text
from master.api.master_status import TRAINING_PHASES, JobPhase

UNANSWERED_LIMIT_S: Final = 15.0
"""Silence of a master after which it is reported; longer than a fail-over takes (M5)."""

OVERDUE_INTERVALS: Final = 10
"""Checkpoints are overdue after this many times `checkpoint.everySeconds` without a commit."""

MOST_NAMED: Final = 3  # refused trainers in one text

_DO_NOT_DELETE: Final = "do not delete trainers or servers: they hold work that is in no checkpoint"
_CHECK_MASTER: Final = "see the master's pod and its log (edl logs tj/NAME --master)"
_CHECK_TRAINER: Final = "if this lasts, see its log (edl logs tj/NAME --trainer 0)"
_SINCE_LAST: Final = (
    f"Until a commit succeeds {_DO_NOT_DELETE}; it would be trained again if they were lost, or the job suspended"
)


class HealthReason(StrEnum):
    """Reasons of both verdicts, as conditions show them; phases of a master have reasons of their own name."""

    TRAINING = "Training"
    PROBLEM = "Problem"
    NO_TRAINER = "NoTrainer"
    STARTING = "Starting"
    WAITING_FOR_SERVERS = "WaitingForServers"
    RESTORING = "Restoring"
    COMPLETE = "Complete"
    FAILED = "Failed"
    NO_ANSWER = "NoAnswer"
    MASTER_UNREACHABLE = "MasterUnreachable"
    NO_LEADER = "NoLeader"
    MALFORMED_ANSWER = "MalformedAnswer"
    UP_TO_DATE = "UpToDate"
    COMMIT_FAILS = "CommitFails"
    STORE_UNAVAILABLE = "StoreUnavailable"
    OVERDUE = "Overdue"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthVerdict:
    """Verdict of one condition.  `holds`: True, False or None (unknown)."""

    holds: bool | None
    reason: HealthReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterContact:
    """Last contact with a job's master.  Instants on one clock, -inf if there is none.

    `missing_answer`: why the last poll failed, None if it was answered; `unanswered_since_s`: the first failed poll.
    `started_at_s`: the job's start or last resume.
    """

    progress: JobProgress | None
    progress_at_s: float
    missing_answer: MissingAnswer | None
    unanswered_since_s: float
    checkpoint_at_s: float
    started_at_s: float
    standstill_since_s: float | None = None  # since when no trainer takes part, by its answers; None: one does
    is_start_awaited: bool = False  # ... while a trainer pod is starting

    @property
    def progress_since_start(self) -> JobProgress | None:
        """The last answer since the job's start or resume."""
        return None if self.progress_at_s < self.started_at_s else self.progress


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterReport:
    """Report on a job's master for people.  `progress`: its last answer since the job's start, if any.

    `missing_answer`: why it does not answer, once that lasts; `since`: since when, as text.
    `has_committed_since_start`: also true if the commit is known only from the status of an earlier leader.
    """

    progress: JobProgress | None
    missing_answer: MissingAnswer | None = None
    since: str = ""
    has_committed_since_start: bool = False
    is_overdue: bool = False
    standstill_since: str = ""  # since when no trainer takes part, as text, once that lasts
    is_start_awaited: bool = False  # no trainer takes part, that lasts, and a trainer pod is starting


_PHASES: Final = {
    JobPhase.STARTING: (
        HealthReason.STARTING,
        f"no trainer has declared a data set yet: its script is starting, or never loops over one; {_CHECK_TRAINER}",
    ),
    JobPhase.WAITING_FOR_SERVERS: (
        HealthReason.WAITING_FOR_SERVERS,
        "trainers wait for parameter servers to connect",
    ),
    JobPhase.RESTORING: (HealthReason.RESTORING, "trainers wait while parameter servers load the last checkpoint"),
    JobPhase.FAILED: (HealthReason.FAILED, "the job's master has given up the job"),
}


def training_verdict(report: MasterReport) -> HealthVerdict:
    """Return whether samples are trained now."""
    if (quiet := _verdict_without_answer(report)) is not None:
        return quiet
    progress = report.progress
    assert progress is not None
    if progress.problem:
        tries = "EDL retries by itself (a checkpoint that cannot be read, for a minute)"
        message = f"nothing is trained until this is resolved; {tries}: {progress.problem}"
        return HealthVerdict(holds=False, reason=HealthReason.PROBLEM, message=message)
    if report.standstill_since:
        message = standstill_text(report.standstill_since, progress)
        return HealthVerdict(holds=False, reason=HealthReason.NO_TRAINER, message=message)
    if report.is_start_awaited:
        message = "no trainer takes part yet, and a trainer pod is starting"
        return HealthVerdict(holds=False, reason=HealthReason.STARTING, message=message)
    if progress.phase in TRAINING_PHASES:
        message = f"phase of the master: {progress.phase}"
        refused = "; ".join(f"{one.name} is refused: {one.reason}" for one in progress.refused[:MOST_NAMED])
        message = "; ".join(filter(None, (message, progress.trainers_problem, refused, progress.data_problem)))
        return HealthVerdict(holds=True, reason=HealthReason.TRAINING, message=message)
    if progress.phase is JobPhase.COMPLETE:
        return HealthVerdict(holds=False, reason=HealthReason.COMPLETE, message=progress.trained_text)
    why, message = _PHASES[progress.phase]
    return HealthVerdict(holds=False, reason=why, message=message)


def checkpoint_verdict(report: MasterReport) -> HealthVerdict:
    """Return whether what is trained comes into checkpoints."""
    if (quiet := _verdict_without_answer(report)) is not None:
        return quiet
    progress = report.progress
    assert progress is not None
    if progress.store_problem:
        message = f"{progress.store_problem}. Restore etcd; commits then resume by themselves. {_SINCE_LAST}"
        return HealthVerdict(holds=False, reason=HealthReason.STORE_UNAVAILABLE, message=message)
    if progress.checkpoint_problem:
        continues = "Training continues, and " if progress.phase in TRAINING_PHASES else ""
        message = f"{progress.checkpoint_problem}. {continues}commits are retried at least every 30 s. {_SINCE_LAST}"
        return HealthVerdict(holds=False, reason=HealthReason.COMMIT_FAILS, message=message)
    if report.is_overdue:
        message = f"no commit has failed, but none was made for {OVERDUE_INTERVALS} times checkpoint.everySeconds"
        message = f"{message}. {_SINCE_LAST}; {_CHECK_MASTER}"
        return HealthVerdict(holds=False, reason=HealthReason.OVERDUE, message=message)
    return HealthVerdict(holds=True, reason=HealthReason.UP_TO_DATE, message="checkpoints are committed")


def master_report(
    contact: MasterContact, *, every_s: float, now_s: float, format_since: Callable[[float], str]
) -> MasterReport:
    """Report on the master as of now.  `format_since` formats since when it, or a trainer, is missing."""
    since_s = max(contact.unanswered_since_s, contact.started_at_s)
    is_reported = isinstance(contact.missing_answer, MalformedAnswer) or now_s - since_s >= UNANSWERED_LIMIT_S
    uncommitted_s = uncommitted_since_s(contact)
    alone_s = contact.standstill_since_s
    has_lasted = contact.progress_since_start is not None and is_standstill_told(alone_s, contact.progress_at_s)
    is_told = has_lasted and not contact.is_start_awaited
    return MasterReport(
        progress=contact.progress_since_start,
        missing_answer=contact.missing_answer if is_reported else None,
        since=format_since(since_s) if contact.missing_answer is not None and is_reported else "",
        has_committed_since_start=contact.checkpoint_at_s > contact.started_at_s,
        is_overdue=uncommitted_s is not None and now_s - uncommitted_s > OVERDUE_INTERVALS * every_s,
        standstill_since=format_since(alone_s) if alone_s is not None and is_told else "",
        is_start_awaited=has_lasted and contact.is_start_awaited,
    )


def uncommitted_since_s(contact: MasterContact) -> float | None:
    """Start of the uncommitted training: the last checkpoint, or a later start or resume.

    None if the job has not started or everything is committed.
    """
    progress = contact.progress_since_start
    if contact.started_at_s == -inf or (progress is not None and progress.done <= progress.committed):
        return None
    return max(contact.started_at_s, contact.checkpoint_at_s)


def _verdict_without_answer(report: MasterReport) -> HealthVerdict | None:
    if isinstance(report.missing_answer, MalformedAnswer):
        message = (
            f"the job's master sent an invalid status, so it is unknown whether the job trains: "
            f"{report.missing_answer.problem}; check that its image has the same version of EDL"
        )
        return HealthVerdict(holds=None, reason=HealthReason.MALFORMED_ANSWER, message=message)
    if report.missing_answer is WhyNoAnswer.NOT_LEADING:
        message = (
            f"the job's masters answer {report.since}, and none leads: etcd is unreachable or slow. Trainers finish "
            f"their leases and then wait, nothing is committed; {_DO_NOT_DELETE}. Check etcd, and the master's log"
        )
        return HealthVerdict(holds=None, reason=HealthReason.NO_LEADER, message=message)
    if report.missing_answer is WhyNoAnswer.SILENT and (
        report.progress is not None or report.has_committed_since_start
    ):
        message = (
            f"the job's master has not answered {report.since}. If only the network is cut, the job continues; if the "
            f"master is down, trainers finish their leases and then wait, and nothing is committed; {_DO_NOT_DELETE}, "
            f"and {_CHECK_MASTER}"
        )
        return HealthVerdict(holds=None, reason=HealthReason.MASTER_UNREACHABLE, message=message)
    if report.progress is None:
        message = "the job's master has not answered yet, and training starts after its first answer; if this lasts, "
        message = f"{message}{_CHECK_MASTER}"
        return HealthVerdict(holds=None, reason=HealthReason.NO_ANSWER, message=message)
    return None
