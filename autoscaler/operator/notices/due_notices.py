"""Which notices are due: each occasion once, soon after it arises, and no more than a channel can bear.  Pure.

An occasion is a fact about one object that began at one instant: a job failed, a job has waited since then, a pod's
unused GPUs are about to be given back.  It is told once, by its key.  An operator that has just begun to lead knows
nothing of what was told before, so an occasion is news for a while only: whoever leads next tells nothing that is old.
All namespaces share one channel and its limit, so they take turns: forty failed jobs of one keep no other's from it.
"""

from __future__ import annotations

from collections import Counter
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
    """Occasion for a notice.  Instants are Unix times; `due_unix_s` is when to tell, `since_unix_s` when it began.

    `again_after_s`: after it was told, no other occasion of this kind is told of this object for so long; what comes
    and goes, as a decision on unused GPUs may with each plan, would fill the channel with one pod.
    """

    kind: NoticeKind
    namespace: str
    name: str
    uid: str
    since_unix_s: float
    due_unix_s: float
    reason: str = ""
    message: str = ""
    again_after_s: float = 0.0

    @property
    def subject(self) -> str:
        """The same for all occasions of one kind of one object."""
        return f"{self.kind.value}/{self.uid}"

    @property
    def key(self) -> str:
        """The same for the same occasion at every look and of every operator; receivers may compare it too."""
        return f"{self.subject}/{int(self.since_unix_s)}"


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
    """What was told: until when each key and subject is remembered, and how many notices may go at `counted_unix_s`.

    `turns`: when each namespace had its last notice, as long as that is news.  `held_back`: keys that were due at the
    last look and not told.
    """

    told: Mapping[str, float] = field(default_factory=dict)
    turns: Mapping[str, float] = field(default_factory=dict)
    held_back: frozenset[str] = frozenset()
    left: float = inf  # at most the burst
    counted_unix_s: float = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticePlan:
    """Notices to send now, how many are due and held back by the limit, and which were held back until no news.

    Namespaces take turns, first the one whose last notice is the oldest; of each the oldest comes first.
    """

    history: NoticeHistory
    notices: tuple[Occasion, ...] = ()
    held_back: int = 0
    lost: tuple[Occasion, ...] = ()


def plan_notices(
    history: NoticeHistory, occasions: Iterable[Occasion], rule: NoticeRule, now_unix_s: float
) -> NoticePlan:
    """Return the notices that are due now.

    Afterwards no key of the plan is told again.  What the limit holds back is due at the next look, as long as it is
    news.  A clock that goes back earns nothing.
    """
    told = {key: until for key, until in history.told.items() if now_unix_s < until}
    left = _left(history, rule, now_unix_s)
    counted_unix_s = max(now_unix_s, history.counted_unix_s)
    turns = {one: at_unix_s for one, at_unix_s in history.turns.items() if counted_unix_s < at_unix_s + rule.news_s}
    untold = {one.key: one for one in occasions if one.key not in history.told}.values()
    due = [
        one for one in untold if one.due_unix_s <= now_unix_s < one.due_unix_s + rule.news_s and one.subject not in told
    ]
    ordered = _in_turn(due, turns)
    sent, held_back = tuple(ordered[: int(left)]), ordered[int(left) :]
    after = NoticeHistory(
        told=told
        | {one.key: one.due_unix_s + rule.news_s for one in sent}
        | {one.subject: now_unix_s + one.again_after_s for one in sent if one.again_after_s},
        turns=turns | {one.namespace: counted_unix_s for one in sent},
        held_back=frozenset(one.key for one in held_back),
        left=left - len(sent),
        counted_unix_s=counted_unix_s,
    )
    old = (one for one in untold if one.due_unix_s + rule.news_s <= now_unix_s)
    lost = tuple(one for one in old if one.key in history.held_back)
    return NoticePlan(history=after, notices=sent, held_back=len(held_back), lost=lost)


def _in_turn(due: Iterable[Occasion], turns: Mapping[str, float]) -> list[Occasion]:
    """Return what is due in rounds of one for each namespace."""
    before: Counter[str] = Counter()
    rounds: list[tuple[int, float, Occasion]] = []
    for one in sorted(due, key=lambda one: (one.due_unix_s, one.key)):
        rounds.append((before[one.namespace], turns.get(one.namespace, -inf), one))
        before[one.namespace] += 1
    return [one for *_, one in sorted(rounds, key=lambda entry: entry[:2])]


def _left(history: NoticeHistory, rule: NoticeRule, now_unix_s: float) -> float:
    if history.counted_unix_s == -inf:
        return float(rule.burst)
    earned = max(0.0, now_unix_s - history.counted_unix_s) / rule.one_more_every_s
    return min(float(rule.burst), history.left + earned)
