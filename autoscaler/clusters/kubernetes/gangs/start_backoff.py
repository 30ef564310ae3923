"""Starts and pods that must get there soon: who has lost that race, and how long its job waits then.

EDL proves a room and ties the pod to its node; another controller's pod can still be bound there first.  A pod not
bound within `bind_limit_s` has lost: of a starting gang all pods go, for a part of it would only hold room; of a
running job that pod alone.  A start is over when the master's Deployment stands too; one that has not come so far
within `MASTER_LIMIT_S` more has lost likewise.  The job then creates nothing for 10, 20, 40 s
(`beside-the-scheduler.md` 9), and up to `LONGEST_PAUSE_S` where it is the API server that refuses again and again.

Pure: `look` takes in what stands and returns who has lost.  All of it can be forgotten: a new leader counts afresh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.writes.create_backoff import PAUSES_S
from autoscaler.domain import JobName, PodName
from autoscaler.fault_isolation import GuardedStep, JobErrors

BIND_LIMIT_S: Final = 10.0
LONGEST_BIND_S: Final = 120.0
PODS_BOUND_PER_S: Final = 25.0
"""Half of kube-scheduler's default of 50 requests a second, which it needs for more than bindings (ADR 0159)."""

MASTER_LIMIT_S: Final = 10.0
START_LIMIT_S: Final = BIND_LIMIT_S + MASTER_LIMIT_S
"""From the gang's first pod to the master's Deployment, which is asked for when all pods are bound (ADR 0159)."""

LONGEST_PAUSE_S: Final = 300.0  # of a job that the API server refuses
FORGOTTEN_AFTER_S: Final = 60.0
"""A running job that has tried nothing for so long after a pause begins anew; a plan is made every 10 s."""

TAKEN_AFTER: Final = 3
"""So many lost races in a row are reported as `RoomTaken`: somebody else fills the room as fast as it is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBackoff:
    """What a job has lost lately.  `refusal`: what the API server said, if it was that which ended the last start.

    `refused`: how often in a row it was that; `generation`: of the definition that was refused.  `verdict`: what
    kube-scheduler said of a pod that lost, where it was not that the room is taken.
    """

    lost: int = 0
    refused: int = 0
    hold_until_s: float = 0.0
    refusal: str = ""
    refused_at_s: float = 0.0
    generation: int = 0
    unschedulable_reason: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether others take the room again and again."""
        return self.lost >= TAKEN_AFTER

    def held_until_s(self, generation: int) -> float:
        """When the job may try again.  One that was edited since it was refused waits for the first pause at most."""
        if not self.refusal or generation == self.generation:
            return self.hold_until_s
        return min(self.hold_until_s, self.refused_at_s + PAUSES_S[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStatus:
    """What stands of a job that EDL made.  `unbound`: gated, un-gated or created with a node, and not there yet."""

    job: JobName
    is_starting: bool  # its master's Deployment does not stand, and has not stood
    bound: frozenset[PodName] = frozenset()
    unbound: frozenset[PodName] = frozenset()
    unschedulable_reason: str = ""  # see `Race`


@dataclass(frozen=True, slots=True, kw_only=True)
class BindDeadline:
    """Since when something is waited for, and for how long at most: the most that was ever allowed."""

    since_s: float
    limit_s: float

    @property
    def until_s(self) -> float:
        """From when on it has lost."""
        return self.since_s + self.limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePods:
    """These pods of a job have to go."""

    job: JobName
    pods: frozenset[PodName]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """What is remembered of one job: since when each pod is unbound and its gang starts, and what it has lost."""

    unbound: Mapping[PodName, BindDeadline] = field(default_factory=dict)
    begun: BindDeadline | None = None
    backoff: StartBackoff = field(default_factory=StartBackoff)

    @property
    def late_at_s(self) -> float:
        """When the next pod, or the start, has lost; infinite: none is under way."""
        waits = [*self.unbound.values(), *([] if self.begun is None else [self.begun])]
        return min((wait.until_s for wait in waits), default=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStarts:
    """The accounts of all jobs."""

    records: Mapping[JobName, StartRecord] = field(default_factory=dict)

    def record(self, job: JobName) -> StartRecord:
        """Return the job's account; of one that has none, an empty one."""
        return self.records.get(job, StartRecord())

    def backoff(self, job: JobName) -> StartBackoff:
        """Return what the job has lost lately."""
        return self.record(job).backoff


def observe_gangs(
    starts: GangStarts,
    standing: Iterable[GangStatus],
    now_s: float,
    *,
    jobs: Collection[JobName],
    managed: Collection[JobName],
    errors: JobErrors,
) -> tuple[GangStarts, tuple[LatePods, ...]]:
    """Take in what stands of jobs.  `jobs`: all that there are; the others are forgotten.

    Of a job that is not `managed` (suspended, say, or invalid) what it has lost stays: an edit there and one back lift
    no pause.  The account of one that is stays as it was while nobody can say what stands of it, and while taking that
    in fails: its pause and its limits go on (`errors`, A11).
    """
    items = [item for item in standing if not errors.is_paused(item.job, GuardedStep.RACE)]
    limit_s = bind_limit_s(sum(len(item.unbound) for item in items))
    kept = {job: account for job, account in starts.records.items() if job in jobs}
    accounts = {
        job: account if job in managed else StartRecord(backoff=account.backoff)
        for job, account in kept.items()
        if job in managed or account.backoff != StartBackoff()
    }
    lost: list[LatePods] = []
    for item in items:
        with errors.isolate(item.job, GuardedStep.RACE):
            account, gone = observe_gang(kept.get(item.job, StartRecord()), item, now_s, limit_s)
            accounts.pop(item.job, None)
            if account != StartRecord():
                accounts[item.job] = account
            if gone is not None:
                lost.append(gone)
    return GangStarts(records=accounts), tuple(lost)


def observe_gang(
    before: StartRecord, item: GangStatus, now_s: float, limit_s: float
) -> tuple[StartRecord, LatePods | None]:
    """Take in what stands of one job.  `limit_s`: how long its pods may take to be bound.

    A start that is over has lost nothing any more; of a job that runs that holds once its pause is over and the next
    pod is bound: when the one that lost is gone, all that stands is bound.
    """
    waits = {pod: _wait(before.unbound.get(pod), now_s, limit_s) for pod in item.unbound}
    late = frozenset(pod for pod, wait in waits.items() if now_s >= wait.until_s)
    start = _wait(before.begun, now_s, limit_s + MASTER_LIMIT_S)
    if late or (item.is_starting and now_s >= start.until_s):
        gone = item.bound | item.unbound if item.is_starting else late
        lost = LatePods(job=item.job, pods=gone, reason=_describe_failure(item, late, waits, start))
        left = {pod: wait for pod, wait in waits.items() if pod not in gone}
        race = replace(back_off(before.backoff, now_s), unschedulable_reason=item.unschedulable_reason)
        return StartRecord(unbound=left, backoff=race), lost
    if item.is_starting and (item.bound or item.unbound):
        return StartRecord(unbound=waits, begun=start, backoff=before.backoff), None
    race = _backoff_after_binding(before, item, now_s) if item.bound and not item.unbound else before.backoff
    return StartRecord(unbound=waits, backoff=race), None


def bind_limit_s(pods: int) -> float:
    """How long the scheduler may take while so many pods are under way together (ADR 0159)."""
    return min(max(BIND_LIMIT_S, pods / PODS_BOUND_PER_S), LONGEST_BIND_S)


def _wait(known: BindDeadline | None, now_s: float, limit_s: float) -> BindDeadline:
    """A limit once allowed stands: who is last in the scheduler's queue waits while those before it are bound."""
    if known is None:
        return BindDeadline(since_s=now_s, limit_s=limit_s)
    return known if known.limit_s >= limit_s else replace(known, limit_s=limit_s)


def _backoff_after_binding(before: StartRecord, item: GangStatus, now_s: float) -> StartBackoff:
    """What is left of what a job has lost that runs, all of whose pods are bound."""
    race = before.backoff
    has_won = now_s >= race.hold_until_s and not item.bound.isdisjoint(before.unbound)
    is_over = before.begun is not None or has_won or now_s >= race.hold_until_s + FORGOTTEN_AFTER_S
    return StartBackoff() if is_over else race


def back_off(race: StartBackoff, now_s: float) -> StartBackoff:
    """One more race lost: the next pause."""
    return StartBackoff(lost=race.lost + 1, hold_until_s=now_s + PAUSES_S[min(race.lost, len(PAUSES_S) - 1)])


def record_refusal(starts: GangStarts, job: JobName, now_s: float, refusal: str, *, generation: int) -> GangStarts:
    """The API server refused what the job needs (a quota, say): pauses likewise, and nothing is tried in a storm.

    Those of refusals in a row double further.  `generation`: of the definition that was refused.
    """
    account = starts.record(job)
    race, refused = back_off(account.backoff, now_s), account.backoff.refused + 1
    if refused > len(PAUSES_S):
        pause_s = min(PAUSES_S[0] * 2.0 ** min(refused - 1, 16), LONGEST_PAUSE_S)
        race = replace(race, hold_until_s=now_s + pause_s)
    race = replace(race, refused=refused, refusal=refusal, refused_at_s=now_s, generation=generation)
    return GangStarts(records={**starts.records, job: replace(account, begun=None, backoff=race)})


def _describe_failure(
    item: GangStatus, late: frozenset[PodName], waits: Mapping[PodName, BindDeadline], start: BindDeadline
) -> str:
    """Tell it to the user."""
    if not late:
        return f"the gang is bound and its master's Deployment not made within {start.limit_s:g} s; it starts again"
    limit_s = max(waits[pod].limit_s for pod in late)
    named = ", ".join(sorted(late)[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")
    rest = "; the gang starts again as a whole" if item.is_starting else ""
    return f"{named} not bound within {limit_s:g} s: the proved room was taken by others{rest}"
