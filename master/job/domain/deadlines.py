"""Deadlines.  `job.deadlines(state)` names those that are pending.

Each carries what it is about, so one that comes early, late, twice or after a renewal is either the decision that it
would have been or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import CutId
from master.job.domain.keys import Instant, MemberKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExpired:
    """No progress of this trainer until `deadline`: its leases return (M2)."""

    trainer: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectWindowEnded:
    """The broken stream of this member did not come back: it is lost."""

    member: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimWindowEnded:
    """Leases of the master before this one, claimed by nobody, are TODO from now on (rule 18)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersAwaited:
    """Nobody has come in the place of a lost server: those that are here go on if they are enough (ADR 0315)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDue:
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldExpired:
    """Not every server has answered HOLD: the cut is given up (rule 19)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class CutExpired:
    """Not every server has written its file: the cut is given up (rule 21)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersOverdue:
    """Servers that have not answered AskMarks, Restore, Skip, Freeze or Activate are asked again."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesExpired:
    """Buckets that began to move have not arrived: their moves are undone (rule 53)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesAgain:
    """What was undone because it did not arrive, and what waited with it, is tried again."""

    deadline: Instant


Deadline = (
    LeaseExpired
    | ReconnectWindowEnded
    | ReclaimWindowEnded
    | OwnersAwaited
    | CommitDue
    | HoldExpired
    | CutExpired
    | AnswersOverdue
    | MovesExpired
    | MovesAgain
)
