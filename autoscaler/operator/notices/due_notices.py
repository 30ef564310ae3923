"""Which notices are due: each occasion once, soon after it arises, and no more than a channel can bear.  Pure.

An occasion is a fact about one object that began at one instant: a job failed, a job has waited since then, a pod's
unused GPUs are about to be given back.  It is told once, by its key.  An operator that has just begun to lead knows
nothing of what was told before, so an occasion is news for a while only: whoever leads next tells nothing that is old.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf


class NoticeKind(StrEnum):
    """Kind of an occasion."""

    JOB_FAILED = "JobFailed"
    JOB_WAITS = "JobWaits"
    GPUS_GIVEN_BACK = "GpusGivenBack"  # they are about to be


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Occasion for a notice.  Instants are Unix times; `due_unix_s` is when to tell, `since_unix_s` when it began."""

    kind: NoticeKind
    namespace: str
    name: str
    uid: str
    since_unix_s: float
    due_unix_s: float
    reason: str = ""
    message: str = ""

    @property
    def key(self) -> str:
        """The same for the same occasion at every look and of every operator; receivers may compare it too."""
        return f"{self.kind.value}/{self.uid}/{int(self.since_unix_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRule:
    """Limits of notices.

    `wait_s`: how long a job waits before that is told.  `news_s`: how long an occasion is news.  `burst` notices may
    go at once, and one more every `one_more_every_s`.
    """

    wait_s: float = 1800.0
    news_s: float = 900.0
    burst: int = 10
    one_more_every_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeHistory:
    """What was told: until when each key is remembered, and how many notices may go at `counted_unix_s`."""

    told: Mapping[str, float] = field(default_factory=dict)
    left: float = inf  # at most the burst
    counted_unix_s: float = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticePlan:
    """Notices to send now, oldest first, and how many are due and held back by the limit."""

    history: NoticeHistory
    notices: tuple[Occasion, ...] = ()
    held_back: int = 0


def plan_notices(
    history: NoticeHistory, occasions: Iterable[Occasion], rule: NoticeRule, now_unix_s: float
) -> NoticePlan:
    """Return the notices that are due now.

    Afterwards no key of the plan is told again.  What the limit holds back is due at the next look, as long as it is
    news.  A clock that goes back earns nothing.
    """
    told = {key: until for key, until in history.told.items() if now_unix_s < until}
    left = _left(history, rule, now_unix_s)
    due = {
        one.key: one
        for one in occasions
        if one.due_unix_s <= now_unix_s < one.due_unix_s + rule.news_s and one.key not in history.told
    }
    ordered = sorted(due.values(), key=lambda one: (one.due_unix_s, one.key))
    sent = tuple(ordered[: int(left)])
    told |= {one.key: one.due_unix_s + rule.news_s for one in sent}
    after = NoticeHistory(told=told, left=left - len(sent), counted_unix_s=max(now_unix_s, history.counted_unix_s))
    return NoticePlan(history=after, notices=sent, held_back=len(ordered) - len(sent))


def _left(history: NoticeHistory, rule: NoticeRule, now_unix_s: float) -> float:
    if history.counted_unix_s == -inf:
        return float(rule.burst)
    earned = max(0.0, now_unix_s - history.counted_unix_s) / rule.one_more_every_s
    return min(float(rule.burst), history.left + earned)
