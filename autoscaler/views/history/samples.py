"""Samples of who had the cluster, kept for the last hour and the last day in rings of fixed size."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, text, unix_s
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.domain import Resources, Role
from autoscaler.views.cluster.cluster_picture import cluster_picture
from autoscaler.views.cluster.pod_view import NodeUnit, Use, all_pods, amount_in
from autoscaler.views.documents import ClusterDocuments, Rights
from autoscaler.views.jobs.job_view import JobView, job_view

HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
RINGS: Final[Mapping[str, tuple[float, float]]] = {"hour": (HOUR_S, 3.0), "day": (DAY_S, 60.0)}
"""By name: how far a ring reaches back, and how far apart its samples are, both in seconds."""

MOST_OWNERS: Final = 64
"""Of a sample; smaller holdings are one, so that a thousand jobs cost no more memory."""

REST: Final = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSample:
    """The cluster at `at_s` (Unix time), in thousandths of `unit`.

    `jobs`: by NAMESPACE/NAME, what its pods hold; `sizes`: its trainers that are ready.  `wanted`: what would be in use
    if everybody had what they want, so that `min(capacity, wanted)` was placeable at most.  `has_more`: jobs that
    `jobs` does not name held something too.  None: the viewer may not know (`readable_sample`).
    """

    at_s: float
    unit: NodeUnit
    capacity: int | None
    used: int
    wanted: int | None
    web: int | None
    jobs: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]
    web_wanted: int | None  # pods
    web_running: int | None
    has_more: bool = False

    @property
    def placeable(self) -> int | None:
        """What could have been in use, at least what was."""
        if self.capacity is None or self.wanted is None:
            return None
        return min(self.capacity, max(self.wanted, self.used))

    def held_by(self, job: str) -> int | None:
        """What the job held; None where it may be among those that are not named."""
        return dict(self.jobs).get(job, None if self.has_more else 0)


def sample_of(documents: ClusterDocuments) -> ClusterSample | None:
    """Return a sample in the unit of most nodes; None without a node."""
    picture = cluster_picture(documents)
    if not picture.nodes:
        return None
    counts = [node.unit for node in picture.nodes]
    unit = max(set(counts), key=counts.count)
    own = [one for one in picture.holdings if one.unit is unit]
    jobs: dict[str, int] = {}
    for one in own:
        if one.use in {Use.CORE, Use.SURPLUS}:
            jobs[one.owner] = jobs.get(one.owner, 0) + one.amount
    jobs_there = documents.memo.each(job_view, documents.jobs)
    used = sum(one.amount for one in own if one.use not in {Use.FREE, Use.HIDDEN})
    pods = all_pods(documents)
    web = [pod for pod in pods if pod.role is Role.EXTERNAL and not pod.is_leaving]
    there = Counter(pod.owner for pod in pods if pod.role is Role.TRAINER)
    requests = documents.memo.each(_trainer_request, documents.jobs)
    growth = sum(_growth(job, there[job.key], one, unit) for job, one in zip(jobs_there, requests, strict=True))
    waiting = sum(amount_in(unit, pod.requests) for pod in picture.waiting)
    return ClusterSample(
        at_s=documents.now_s,
        unit=unit,
        capacity=dict(picture.capacity)[unit],
        used=used,
        wanted=used + waiting + growth,
        web=sum(one.amount for one in own if one.use in {Use.WEB, Use.IDLE}),
        jobs=_largest(jobs),
        sizes=tuple((job.key, job.trainers.ready) for job in jobs_there[:MOST_OWNERS]),
        web_wanted=len(web),
        web_running=sum(pod.is_ready for pod in web),
        has_more=len(jobs) > MOST_OWNERS,
    )


def _trainer_request(job: Raw) -> Resources:
    return pod_request(part(job, "spec", "trainer", "template", "spec"))


def _growth(found: JobView, there: int, request: Resources, unit: NodeUnit) -> int:
    """Amount that the job's trainers up to its maximum would hold beside those that are there.

    `there`: its trainer pods, ready or not, with a node or without: what they hold or wait for is counted already.
    """
    if found.ending or not found.is_reconciled or "Suspended" in found.conditions:
        return 0
    missing = max(0, (found.trainers.pinned or found.trainers.max) - there)
    return missing * amount_in(unit, request)


def _largest(jobs: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    ordered = sorted(jobs.items(), key=lambda one: -one[1])
    rest = sum(amount for _, amount in ordered[MOST_OWNERS:])
    return tuple(sorted(ordered[:MOST_OWNERS])) + (((REST, rest),) if rest else ())


class SampleRings:
    """Rings of samples: bounded, whatever is added.  One sample stands for each step of a ring, the first in it.

    `namespaces`: of all jobs that the samples name, and maybe of some that they named.
    """

    def __init__(self) -> None:
        self._rings: dict[str, deque[ClusterSample]] = {
            name: deque(maxlen=int(span_s / step_s) + 1) for name, (span_s, step_s) in RINGS.items()
        }
        self.namespaces: frozenset[str] = frozenset()

    def add(self, sample: ClusterSample) -> None:
        """Add a sample to each ring whose last one is a step old; a clock that went back begins anew there."""
        for name, (_, step_s) in RINGS.items():
            ring = self._rings[name]
            if ring and sample.at_s < ring[-1].at_s:
                ring.clear()
            if not ring or sample.at_s - ring[-1].at_s >= step_s:
                ring.append(sample)
                self.namespaces |= _namespaces_of(sample)

    def forget(self, namespaces: AbstractSet[str]) -> None:
        """Name no job of these namespaces any more: what they held counts among the others'."""
        for ring in self._rings.values():
            kept = [_without(sample, namespaces) for sample in ring]
            ring.clear()
            ring.extend(kept)
        self.namespaces = frozenset().union(*(_namespaces_of(one) for ring in self._rings.values() for one in ring))

    def samples(self, name: str, *, now_s: float) -> Sequence[ClusterSample]:
        """Return the samples of a ring that are no older than it reaches."""
        span_s, _ = RINGS[name]
        return [one for one in self._rings[name] if now_s - one.at_s <= span_s]


def standing_since(documents: ClusterDocuments) -> Mapping[str, float]:
    """Return when the oldest object of each namespace was made (Unix time): so long nobody else has had its name.

    Some ten milliseconds for 20,000 pods, and no kind is gone through again before one of its objects has changed.
    """
    kinds = {"jobs": documents.jobs, "deployments": documents.deployments, "pods": documents.pods}
    found = [documents.memo.once(_oldest_in, objects, name=kind) for kind, objects in kinds.items()]
    oldest = {namespace: min(one[namespace] for one in found if namespace in one) for namespace in set().union(*found)}
    instants = {namespace: unix_s(made) for namespace, made in oldest.items()}
    return {namespace: at_s for namespace, at_s in instants.items() if at_s is not None}


def _oldest_in(objects: Iterable[Raw]) -> Mapping[str, str]:
    """Return when the oldest of the objects of each namespace was made; instants of the API sort as text."""
    oldest: dict[str, str] = {}
    for one in objects:
        namespace, made = text(one, "metadata", "namespace"), text(one, "metadata", "creationTimestamp")
        if made and made < oldest.get(namespace, "~"):
            oldest[namespace] = made
    return oldest


def of_present_namespaces(samples: Iterable[ClusterSample], since_s: Mapping[str, float]) -> Sequence[ClusterSample]:
    """Return the samples; what a namespace held before its instant of `since_s`, or without one, is the others'."""

    def cut(sample: ClusterSample) -> ClusterSample:
        named = _namespaces_of(sample)
        return _without(sample, {one for one in named if since_s.get(one, math.inf) > sample.at_s})

    return [cut(sample) for sample in samples]


def _namespaces_of(sample: ClusterSample) -> frozenset[str]:
    return frozenset(owner.partition("/")[0] for owner, _ in (*sample.jobs, *sample.sizes) if owner != REST)


def _without(sample: ClusterSample, namespaces: AbstractSet[str]) -> ClusterSample:
    if namespaces.isdisjoint(_namespaces_of(sample)):
        return sample
    named = tuple(one for one in sample.jobs if one[0] == REST or one[0].partition("/")[0] not in namespaces)
    rest = sum(amount for _, amount in sample.jobs) - sum(amount for owner, amount in named if owner != REST)
    return replace(
        sample,
        jobs=tuple(one for one in named if one[0] != REST) + (((REST, rest),) if rest else ()),
        sizes=tuple(one for one in sample.sizes if one[0].partition("/")[0] not in namespaces),
        has_more=sample.has_more or bool(rest),
    )


def readable_sample(sample: ClusterSample, rights: Rights) -> ClusterSample:
    """Return the sample as far as it may be known: without the right to all of it, what the viewer's jobs hold alone.

    Sums go too: the rest of the cluster could be read from them.
    """
    if rights.namespaces is None and rights.can_read_nodes:
        return sample
    own = tuple((owner, amount) for owner, amount in sample.jobs if _is_readable(owner, rights))
    return replace(
        sample,
        capacity=None,
        used=sum(amount for _, amount in own),
        wanted=None,
        web=None,
        jobs=own,
        sizes=tuple((owner, size) for owner, size in sample.sizes if _is_readable(owner, rights)),
        web_wanted=None,
        web_running=None,
    )


def _is_readable(owner: str, rights: Rights) -> bool:
    namespace, slash, _ = owner.partition("/")
    return bool(slash) and rights.can_read(namespace)


def owners_of(samples: Iterable[ClusterSample]) -> list[str]:
    """Return the jobs that held something in any sample, the largest first."""
    totals: dict[str, int] = {}
    for sample in samples:
        for owner, amount in sample.jobs:
            totals[owner] = totals.get(owner, 0) + amount
    return sorted(totals, key=lambda owner: -totals[owner])
