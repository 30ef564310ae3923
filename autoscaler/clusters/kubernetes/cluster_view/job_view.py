"""TrainingJobs in the view: parsed once per change, converted for the planner in each view, since their runtime
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import LIMIT_RANGES, POD_AUTOSCALERS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cluster_view.view_delta import ChangedKeys, ViewDelta
from autoscaler.clusters.kubernetes.objects.fields import integer
from autoscaler.clusters.kubernetes.objects.names import job_key
from autoscaler.clusters.kubernetes.parsing.deployment_objects import conflicting_job
from autoscaler.clusters.kubernetes.parsing.limit_ranges import NO_LIMITS, PodLimits, parse_limit_ranges
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses
from autoscaler.clusters.kubernetes.parsing.server_replacement import BucketOwners
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, parse_job, to_planner_job
from autoscaler.domain import IdleTrainer, Job, JobName, JobState, NodeName
from autoscaler.domain.view import check
from autoscaler.errors import InvalidSpecError
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.manifests.api_types import Mode
from autoscaler.throughput import FittedCurve
from autoscaler.throughput.remaining_time import RemainingWork

NEVER_S: Final = 1e15
"""An instant that never comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRuntime:
    """Runtime state of a job, which the operator knows beside its object.  Instants are on the cluster's clock."""

    state: JobState
    hold_until_s: float = 0.0
    hold_reason: str = ""  # of a pause that follows no failure
    checkpoint_age_s: float | None = None
    remaining_s: float | None = None
    trainers_per_server: int | None = None  # measured; None: as its spec says
    waiting_share: float = 0.0  # of its trainers' time, 0 to 1: waiting for parameter servers, in a group for data
    resize_pause_s: float = 0.0  # of all trainers of a group, as its master measured it; 0: not measured
    throughput: FittedCurve | None = None  # by its size, as observed
    remaining_work: RemainingWork | None = None  # for people: it changes with every poll, so the operator leaves it out
    avoided_nodes: frozenset[NodeName] = frozenset()  # nodes where its pods keep failing
    bucket_owners: BucketOwners | None = None  # which of its servers own buckets; None: unknown now
    idle: tuple[IdleTrainer, ...] = ()  # its trainers that do no work


RuntimeOf: TypeAlias = Callable[[KubeJob], JobRuntime]

_LIFE: Final = (
    "state",
    "hold_until_s",
    "hold_reason",
    "checkpoint_age_s",
    "remaining_s",
    "waiting_share",
    "resize_pause_s",
    "throughput",
    "remaining_work",
    "idle",
)
_life_of: Final = attrgetter(*_LIFE)


class TrackedJobs:
    """The TrainingJobs of the cache.

    `known` are parsed jobs, `invalid` those that could not be parsed, and why.  `contested` jobs have a size that
    another autoscaler owns (A10).  `refused` jobs get no pods, because a LimitRange forbids them, and why.  `by_uid`
    finds the owner of a pod.

    With `fixes_observed` a job in mode observe keeps its size in the plan: no capacity is reserved for its growth, and
    none is expected from it.  `observed` has the job as it would be planned if EDL acted on it.

    A job that fails for an unexpected reason is invalid, or stays as it was (`errors`, A11).

    """

    def __init__(
        self,
        store: ObjectCache,
        *,
        offset_s: float,
        runtime_of: RuntimeOf,
        errors: JobErrors,
        fixes_observed: bool = False,
    ) -> None:
        self.known: dict[JobName, KubeJob] = {}
        self.invalid: dict[JobName, InvalidSpecError] = {}
        self.contested: frozenset[JobName] = frozenset()
        self.refused: dict[JobName, str] = {}
        self.observed: dict[JobName, Job] = {}
        self.by_uid: dict[str, JobName] = {}
        self._limits: dict[str, PodLimits] = {}
        self._store = store
        self._offset_s = offset_s
        self._runtime_of = runtime_of
        self._errors = errors
        self._fixes_observed = fixes_observed
        self._generations: dict[JobName, int] = {}
        self._planned: dict[JobName, Job] = {}
        self._drawn: dict[JobName, tuple[KubeJob, int, frozenset[NodeName], Job]] = {}  # without its runtime

    def parse_changes(self, changes: ChangedKeys) -> set[JobName]:
        """Parse what has changed; return the jobs that were added, removed or replaced under their name."""
        raws, moved = self._store.objects(TRAINING_JOBS), set[JobName]()
        if changes.get(LIMIT_RANGES):
            self._read_limits()
        for key in changes.get(TRAINING_JOBS, ()):
            name = job_key(*key)
            before = self.known.pop(name, None)
            self.invalid.pop(name, None)
            self.refused.pop(name, None)
            if (raw := raws.get(key)) is not None:
                self._errors.attempt(name, GuardedTask.READ, partial(self._read, name, raw))
                if name not in self.known and name not in self.invalid:
                    self.invalid[name] = InvalidSpecError("spec", self._errors.problem(name))
            after = self.known.get(name)
            if (before and before.uid) != (after and after.uid):
                moved.add(name)
                if before is not None:
                    del self.by_uid[before.uid]
                if after is not None:
                    self.by_uid[after.uid] = name
        if changes.get(POD_AUTOSCALERS):
            scalers = self._store.objects(POD_AUTOSCALERS).items()
            found = (
                self._errors.attempt(object_key("hpa", *key), GuardedTask.READ, partial(conflicting_job, raw))
                for key, raw in scalers
            )
            self.contested = frozenset(job for job in found if job is not None)
        return moved

    def to_planner_jobs(self, classes: PriorityClasses, trainers: Mapping[JobName, int]) -> ViewDelta[Job, JobName]:
        """Return the planner's jobs that are new or different.  `trainers`: how many run, of `counted` jobs."""
        self.observed = {}
        planned: dict[JobName, Job] = {}
        for name, job in self.known.items():
            found = None
            if not self._errors.is_paused(name, GuardedTask.PLAN_INPUT):
                with self._errors.isolate(name, GuardedTask.PLAN_INPUT):
                    found = self._plan(job, classes, trainers.get(name, 0))
                    if found is not self._planned.get(name):
                        check(found)
            if (found := found or self._planned.get(name)) is not None:  # as it was planned last
                planned[name] = found
        before, self._planned = self._planned, planned
        for name in self._drawn.keys() - planned.keys():
            del self._drawn[name]
        for name in self._generations.keys() - self.known.keys() - self.invalid.keys():
            del self._generations[name]
        return ViewDelta(
            found=[job for name, job in planned.items() if job is not (last := before.get(name)) and job != last],
            gone=before.keys() - planned.keys(),
        )

    @property
    def counted(self) -> frozenset[JobName]:
        """The jobs whose size is the number of trainers that they have."""
        observed = (name for name, job in self.known.items() if self._fixes_observed and job.spec.mode is Mode.OBSERVE)
        return self.contested.union(observed)

    def active(self) -> dict[JobName, KubeJob]:
        """Return the jobs that want to run, as of the last `plan`."""
        return {name: self.known[name] for name, job in self._planned.items() if job.state is JobState.ACTIVE}

    def runtime(self, job: KubeJob) -> JobRuntime:
        """Return what the operator knows of the job."""
        return self._runtime_of(job)

    def bucket_owners(self, name: JobName) -> BucketOwners | None:
        """Return which of the job's servers own buckets."""
        job = self.known.get(name)
        return None if job is None else self._runtime_of(job).bucket_owners

    def _read(self, name: JobName, raw: Raw) -> None:
        generation = integer(raw, "metadata", "generation")
        if generation != self._generations.get(name, generation):
            self._errors.handle_edit(name)
        self._generations[name] = generation
        try:
            self._store_job(parse_job(raw))
        except InvalidSpecError as error:
            self.invalid[name] = error

    def _store_job(self, job: KubeJob) -> None:
        """Keep the job with the LimitRanges of its namespace."""
        self.known[job.key] = job = replace(job, limits=self._limits.get(job.namespace, NO_LIMITS))
        self.refused.pop(job.key, None)
        if refusal := job.refusal:
            self.refused[job.key] = refusal

    def _read_limits(self) -> None:
        """Apply changed LimitRanges to every job."""
        by_namespace: dict[str, list[Raw]] = {}
        for (namespace, _), raw in self._store.objects(LIMIT_RANGES).items():
            by_namespace.setdefault(namespace, []).append(raw)
        self._limits = {}
        for namespace, raws in by_namespace.items():
            with self._errors.isolate(object_key("limitranges", namespace, ""), GuardedTask.READ):
                self._limits |= parse_limit_ranges(raws)
        for job in tuple(self.known.values()):
            with self._errors.isolate(job.key, GuardedTask.READ):
                self._store_job(job)

    def _convert(self, job: KubeJob, priority: int, avoid: frozenset[NodeName]) -> Job:
        """Return the planner's job; converted once while nothing of it changes, since every view needs all jobs."""
        kept = self._drawn.get(job.key)
        if kept is not None and kept[0] is job and kept[1:3] == (priority, avoid):
            return kept[3]
        drawn = to_planner_job(job, priority=priority, offset_s=self._offset_s, avoid=avoid)
        self._drawn[job.key] = (job, priority, avoid, drawn)
        return drawn

    def _plan(self, job: KubeJob, classes: PriorityClasses, trainers: int) -> Job:
        facts = self._runtime_of(job)
        value = classes.value_of(job.spec.priority_class)
        planned = self._convert(job, classes.default if value is None else value, facts.avoided_nodes)
        if job.key in self.contested and not planned.trainer.pinned_replicas:
            # Its owner has not written a count yet: it stays at the one that it has.
            pinned = planned.trainer.largest_allowed(trainers)
            planned = replace(planned, trainer=replace(planned.trainer, pinned_replicas=pinned))
        if facts.trainers_per_server is not None and planned.servers is not None:
            servers = replace(planned.servers, trainers_per_server=facts.trainers_per_server)
            planned = replace(planned, servers=servers)
        # if the parsing of its pods fails, it is not known which of them run
        is_held = job.key in self.refused or self._errors.fails(job.key, GuardedTask.PODS)
        facts = replace(facts, hold_until_s=NEVER_S) if is_held else facts
        if _life_of(facts) != _life_of(planned):  # of hundreds that wait nothing is copied
            planned = replace(planned, **dict(zip(_LIFE, _life_of(facts), strict=True)))
        if not self._fixes_observed or job.spec.mode is not Mode.OBSERVE:
            return planned
        self.observed[job.key] = planned
        return with_fixed_size(planned, trainers)


def with_fixed_size(job: Job, trainers: int) -> Job:
    """Return the job for a planner that cannot change it: nothing is created, and nothing can be deleted."""
    held = replace(job, hold_until_s=NEVER_S)
    if not trainers:
        return held
    sizes = replace(
        job.trainer,
        min_replicas=trainers,
        max_replicas=trainers,
        step=1,
        powers_of_two=False,
        sizes=(),
        per_node=1,
        pinned_replicas=0,
    )
    return replace(held, trainer=sizes)
