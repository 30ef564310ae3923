"""Deadlines of gang starts and of single pods, and the backoff of jobs whose pods were not bound in time.

EDL proves capacity and ties the pod to its node, but another controller's pod can still be bound there first.  A pod
that is not bound within `bind_limit_s` is late.  If its gang is starting, all pods of the gang are deleted, since a
part of a gang only holds capacity; if its job runs, that pod alone is.  A start is complete once the master's
Deployment exists, and late `MASTER_LIMIT_S` after the pods' deadline.  The job then creates nothing for 10, 20, then 40
s (`beside-the-scheduler.md` 9), and for up to `LONGEST_PAUSE_S` if the API server refuses it again and again.

Pure: `observe_gangs` takes the status of all gangs and returns whose pods are late.  A new leader starts from nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.writes.create_backoff import PAUSES_S
from autoscaler.domain import JobName, PodName
from autoscaler.fault_isolation import GuardedTask, JobErrors

BIND_LIMIT_S: Final = 10.0
LONGEST_BIND_S: Final = 120.0
PODS_BOUND_PER_S: Final = 25.0
"""Half of kube-scheduler's default of 50 requests a second, which it needs for more than bindings (ADR 0159)."""

MASTER_LIMIT_S: Final = 10.0
START_LIMIT_S: Final = BIND_LIMIT_S + MASTER_LIMIT_S
"""From the gang's first pod to the master's Deployment, which is created when all pods are bound (ADR 0159)."""

LONGEST_PAUSE_S: Final = 300.0  # of a job that the API server refuses
FORGOTTEN_AFTER_S: Final = 60.0
"""A running job's backoff is cleared if the job has created nothing for this long after a pause."""

LOST_RACES_REPORTED: Final = 3
"""Lost races in a row before `CapacityLost` is reported: other pods take the capacity as soon as it is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBackoff:
    """Failed starts of one job, and until when it pauses.

    `refusal`: the API server's message, if a refusal ended the last start; `refusals` counts those in a row, and
    `generation` is that of the refused definition.  `unschedulable_reason`: kube-scheduler's message about a late pod,
    where the reason is not lack of capacity.
    """

    lost_races: int = 0
    refusals: int = 0
    hold_until_s: float = 0.0
    refusal: str = ""
    refused_at_s: float = 0.0
    generation: int = 0
    unschedulable_reason: str = ""

    @property
    def is_capacity_taken(self) -> bool:
        """True if other pods take the proved capacity again and again."""
        return self.lost_races >= LOST_RACES_REPORTED

    def held_until_s(self, generation: int) -> float:
        """Return when the job may try again.  A job edited since its refusal waits for the first pause at most."""
        if not self.refusal or generation == self.generation:
            return self.hold_until_s
        return min(self.hold_until_s, self.refused_at_s + PAUSES_S[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStatus:
    """Status of the pods that EDL created for a job.  `unbound`: gated, un-gated or tied pods without a node."""

    job: JobName
    is_starting: bool  # its master's Deployment does not exist, and has not existed
    bound: frozenset[PodName] = frozenset()
    unbound: frozenset[PodName] = frozenset()
    unschedulable_reason: str = ""  # see `StartBackoff`


@dataclass(frozen=True, slots=True, kw_only=True)
class BindDeadline:
    """Since when a binding is awaited, and the longest limit that was ever allowed for it."""

    since_s: float
    limit_s: float

    @property
    def until_s(self) -> float:
        """The deadline."""
        return self.since_s + self.limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePods:
    """Pods of a job that have missed their deadline and are to be deleted."""

    job: JobName
    pods: frozenset[PodName]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """Deadlines and backoff of one job.  `begun`: of the gang's start."""

    unbound: Mapping[PodName, BindDeadline] = field(default_factory=dict)
    begun: BindDeadline | None = None
    backoff: StartBackoff = field(default_factory=StartBackoff)

    @property
    def late_at_s(self) -> float:
        """The next deadline; infinite if nothing is awaited."""
        waits = [*self.unbound.values(), *([] if self.begun is None else [self.begun])]
        return min((wait.until_s for wait in waits), default=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStarts:
    """The records of all jobs."""

    records: Mapping[JobName, StartRecord] = field(default_factory=dict)

    def record(self, job: JobName) -> StartRecord:
        """Return the job's record; an empty one if it has none."""
        return self.records.get(job, StartRecord())

    def backoff(self, job: JobName) -> StartBackoff:
        """Return the job's backoff."""
        return self.record(job).backoff


def observe_gangs(
    starts: GangStarts,
    statuses: Iterable[GangStatus],
    now_s: float,
    *,
    jobs: Collection[JobName],
    managed: Collection[JobName],
    errors: JobErrors,
) -> tuple[GangStarts, tuple[LatePods, ...]]:
    """Update all records by the status of gangs; return them and the late pods.  `jobs`: all that exist; others are
    dropped.

    A job that is not `managed` (suspended or invalid, say) keeps its backoff: suspending and resuming ends no pause.  A
    job whose status cannot be determined keeps its record, so that its pause and deadlines continue (`errors`, A11).
    """
    items = [item for item in statuses if not errors.is_paused(item.job, GuardedTask.POD_BINDING)]
    limit_s = bind_limit_s(sum(len(item.unbound) for item in items))
    kept = {job: account for job, account in starts.records.items() if job in jobs}
    accounts = {
        job: account if job in managed else StartRecord(backoff=account.backoff)
        for job, account in kept.items()
        if job in managed or account.backoff != StartBackoff()
    }
    lost: list[LatePods] = []
    for item in items:
        with errors.isolate(item.job, GuardedTask.POD_BINDING):
            account, late = observe_gang(kept.get(item.job, StartRecord()), item, now_s, limit_s)
            accounts.pop(item.job, None)
            if account != StartRecord():
                accounts[item.job] = account
            if late is not None:
                lost.append(late)
    return GangStarts(records=accounts), tuple(lost)


def observe_gang(
    before: StartRecord, item: GangStatus, now_s: float, limit_s: float
) -> tuple[StartRecord, LatePods | None]:
    """Update one job's record.  `limit_s`: how long its pods may take to be bound.

    A complete start clears the backoff.  For a running job, the next pod that is bound after the pause does: once the
    late pod is deleted, all other pods are bound.
    """
    waits = {pod: _wait(before.unbound.get(pod), now_s, limit_s) for pod in item.unbound}
    late = frozenset(pod for pod, wait in waits.items() if now_s >= wait.until_s)
    start = _wait(before.begun, now_s, limit_s + MASTER_LIMIT_S)
    if late or (item.is_starting and now_s >= start.until_s):
        to_delete = item.bound | item.unbound if item.is_starting else late
        lost = LatePods(job=item.job, pods=to_delete, reason=_describe_failure(item, late, waits, start))
        left = {pod: wait for pod, wait in waits.items() if pod not in to_delete}
        backoff = replace(back_off(before.backoff, now_s), unschedulable_reason=item.unschedulable_reason)
        return StartRecord(unbound=left, backoff=backoff), lost
    if item.is_starting and (item.bound or item.unbound):
        return StartRecord(unbound=waits, begun=start, backoff=before.backoff), None
    backoff = _backoff_after_binding(before, item, now_s) if item.bound and not item.unbound else before.backoff
    return StartRecord(unbound=waits, backoff=backoff), None


def bind_limit_s(pods: int) -> float:
    """Return how long the scheduler may take while this many pods await binding (ADR 0159)."""
    return min(max(BIND_LIMIT_S, pods / PODS_BOUND_PER_S), LONGEST_BIND_S)


def _wait(known: BindDeadline | None, now_s: float, limit_s: float) -> BindDeadline:
    """Bind deadline.  A limit never shrinks: the last pod in the scheduler's queue waits for those before it."""
    if known is None:
        return BindDeadline(since_s=now_s, limit_s=limit_s)
    return known if known.limit_s >= limit_s else replace(known, limit_s=limit_s)


def _backoff_after_binding(before: StartRecord, item: GangStatus, now_s: float) -> StartBackoff:
    """Return what remains of the backoff of a running job, all of whose pods are bound."""
    backoff = before.backoff
    has_won = now_s >= backoff.hold_until_s and not item.bound.isdisjoint(before.unbound)
    is_over = before.begun is not None or has_won or now_s >= backoff.hold_until_s + FORGOTTEN_AFTER_S
    return StartBackoff() if is_over else backoff


def back_off(backoff: StartBackoff, now_s: float) -> StartBackoff:
    """Return the backoff after one more failed start."""
    return StartBackoff(
        lost_races=backoff.lost_races + 1, hold_until_s=now_s + PAUSES_S[min(backoff.lost_races, len(PAUSES_S) - 1)]
    )


def record_refusal(starts: GangStarts, job: JobName, now_s: float, refusal: str, *, generation: int) -> GangStarts:
    """Record that the API server refused what the job needs (a quota, say).

    Pauses of refusals in a row double beyond `PAUSES_S`.  `generation`: of the definition that was refused.
    """
    account = starts.record(job)
    backoff, refusals = back_off(account.backoff, now_s), account.backoff.refusals + 1
    if refusals > len(PAUSES_S):
        pause_s = min(PAUSES_S[0] * 2.0 ** min(refusals - 1, 16), LONGEST_PAUSE_S)
        backoff = replace(backoff, hold_until_s=now_s + pause_s)
    backoff = replace(backoff, refusals=refusals, refusal=refusal, refused_at_s=now_s, generation=generation)
    return GangStarts(records={**starts.records, job: replace(account, begun=None, backoff=backoff)})


def _describe_failure(
    item: GangStatus, late: frozenset[PodName], waits: Mapping[PodName, BindDeadline], start: BindDeadline
) -> str:
    """Return the reason for the user."""
    if not late:
        cause = f"its master's Deployment was not created within {start.limit_s:g} s"
        return f"the gang was bound, but {cause}; the gang starts again"
    limit_s = max(waits[pod].limit_s for pod in late)
    named = ", ".join(sorted(late)[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")
    rest = "; the gang starts again as a whole" if item.is_starting else ""
    return f"{named} not bound within {limit_s:g} s: other pods took the proved capacity{rest}"
