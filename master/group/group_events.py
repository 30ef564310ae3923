"""Events of a group's master: those of any job's, and the deadlines of groups.

A deadline that comes early, late or twice is the decision that it would have been, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.job.domain.durable_records import Instant, MemberKey
from master.job.domain.job_events import (
    AdoptableFound,
    BackoffLimitSet,
    ComparisonRequested,
    HeadNamed,
    ManifestWriteFailed,
    ManifestWritten,
    MessageReceived,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    ServersRequested,
    StreamBroken,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinersGathered:
    """Trainers that came shortly after one another make one change of members (rule 79)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSilent:
    """The member should have moved by `deadline`: it is lost for the group."""

    member: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveDue:
    """The grace of a leaver is almost over: nothing is waited for any more (rule 83)."""

    member: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDue:
    """The interval between checkpoints has passed."""

    deadline: Instant


GroupDeadline = JoinersGathered | ReplicaSilent | LeaveDue | CheckpointDue | ReclaimWindowEnded | ReconnectWindowEnded

GroupCoreEvent = (
    MessageReceived
    | StreamBroken
    | Persisted
    | PersistRefused
    | ManifestWritten
    | ManifestWriteFailed
    | HeadNamed
    | AdoptableFound
    | ServersRequested
    | BackoffLimitSet
    | ComparisonRequested
    | GroupDeadline
)
