"""Pods in the view, EDL's and external ones: parsed when they change, or when the owner of a pod does.

A TrainingJob owns EDL's pods, and its Deployment the masters.  In two points the view differs from what the watches
have shown: own writes count at once (`expectations`), and capacity stays reserved for the masters of a starting gang
until their Deployment has pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.cache.expectations import Expectations
from autoscaler.clusters.kubernetes.cache.object_cache import Key, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view.view_delta import ChangedKeys, ViewDelta
from autoscaler.clusters.kubernetes.objects.fields import EMPTY, ENDED_PHASES, part, text
from autoscaler.clusters.kubernetes.objects.labels import JOB, MASTER_NODES, ROLE
from autoscaler.clusters.kubernetes.objects.names import job_key, master_name
from autoscaler.clusters.kubernetes.parsing.deployment_objects import job_of_master
from autoscaler.clusters.kubernetes.parsing.pod_objects import PodContext, assign_master_ordinals, gates_of, parse_pod
from autoscaler.clusters.kubernetes.parsing.pod_shapes import occupied_shape, shape_of_spec, split_node_pin
from autoscaler.clusters.kubernetes.parsing.server_replacement import BucketOwners, as_replacement, find_replaced_pod
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, shapes_of
from autoscaler.domain import JobName, NodeName, Pod, PodName, PodPhase, Reclaim, Role, Tier
from autoscaler.domain.view import check
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key

MOST_ORDINALS_KEPT = 10_000  # beyond it, ordinals of deleted masters are dropped

SIZED = frozenset({PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY})


class TrackedPods:
    """The pods of the cache, and own writes that no watch has shown yet."""

    def __init__(
        self,
        store: ObjectCache,
        *,
        jobs_by_uid: Mapping[str, JobName],
        reclaim: Reclaim,
        offset_s: float,
        expected: Callable[[], Expectations],
        bucket_owners: Callable[[JobName], BucketOwners | None],
        errors: JobErrors,
    ) -> None:
        self._store = store
        self._errors = errors
        self._unread: dict[Key, JobName] = {}  # unreadable pods: they stay in the view as they were
        self._expected = expected
        self._owning = bucket_owners
        self._successors: set[Key] = set()  # servers that replace another one: their job's master decides their state
        self._counted_on = Expectations()
        self._masters: dict[str, str] = {}  # NAMESPACE/DEPLOYMENT -> UID of its job
        self._ordinals: dict[str, int] = {}  # of masters' pods, by UID
        self._context = PodContext(
            jobs=jobs_by_uid,
            masters=self._masters,
            master_ordinals=self._ordinals,
            reclaim=reclaim,
            offset_s=offset_s,
        )
        self._job_by_label: dict[Key, JobName] = {}  # pod -> the job that its label names
        self._labelled: dict[JobName, set[Key]] = {}  # the other way round
        self._parsed: dict[Key, Pod] = {}
        self._reservations: dict[JobName, dict[PodName, Pod]] = {}
        self._reserved_for: dict[JobName, KubeJob | None] = {}  # the job from which its reservations were derived
        self._reservations_due: set[JobName] = set()
        self._stamps: dict[JobName, int] = {}
        self._stamping = count(1)  # for all jobs, so that no job gets a number twice

    def parse_changes(self, changes: ChangedKeys, changed_jobs: Iterable[JobName]) -> ViewDelta[Pod, PodName]:
        """Return the pods that are new or different.  `changed_jobs`: jobs that were added, removed or replaced."""
        touched = set(changed_jobs) | self._read_masters(changes)
        dirty = set(changes.get(PODS, ())) | self._update_expectations()
        for key in dirty:
            with self._errors.isolate(object_key("pod", *key), GuardedTask.READ):
                touched |= self._index(key, self._find(key))
        for job in touched:
            with self._errors.isolate(job, GuardedTask.MASTER_NODES):
                self._number_masters(job)
            dirty |= self._labelled.get(job, set())
        dirty |= self._successors
        delta: ViewDelta[Pod, PodName] = ViewDelta()
        self._read_all(dirty, delta)
        self._reservations_due |= touched
        for job in touched:
            if job in self._labelled:
                self._stamps[job] = next(self._stamping)
            else:
                self._stamps.pop(job, None)
        return delta

    def reserve_for_masters(self, jobs: Mapping[JobName, KubeJob], delta: ViewDelta[Pod, PodName]) -> None:
        """Add pods to `delta` that reserve the capacity of masters, and remove those that no longer do.

        `jobs`: those that want to run.
        """
        edited = {job for job in self._reservations if jobs.get(job) is not self._reserved_for.get(job)}
        for job in self._reservations_due | edited:
            with self._errors.isolate(job, GuardedTask.MASTER_NODES):
                self._reserve_for_masters_of(job, jobs.get(job), delta)
        self._reservations_due.clear()

    def trainers(self, jobs: Iterable[JobName]) -> dict[JobName, int]:
        """Return how many trainers of each job run or are pending."""
        return {
            job: sum(
                pod.role is Role.TRAINER and pod.phase in SIZED
                for key in self._labelled.get(job, ())
                if (pod := self._parsed.get(key)) is not None
            )
            for job in jobs
        }

    def of_job(self, job: JobName) -> list[Raw]:
        """Return the job's pods as the API server has them, with ended and gated ones and own deletions ignored."""
        raws = self._store.objects(PODS)
        return [raws[key] for key in sorted(self._labelled.get(job, ())) if key in raws]

    def master_nodes(self, job: JobName) -> list[NodeName]:
        """Return the nodes reserved for the masters, by the annotation of the gang's pods."""
        annotations = (text(raw, "metadata", "annotations", MASTER_NODES) for raw in self._live_pods(job))
        return next(([NodeName(node) for node in line.split(",")] for line in annotations if line), [])

    def stamp(self, job: JobName) -> int:
        """Return a number that differs after each change of the job's pods; 0: it has none."""
        return self._stamps.get(job, 0)

    def _find(self, key: Key) -> Raw | None:
        """Return the pod as the watch has shown it, or as it may have been created."""
        creation = self._counted_on.creations.get((PODS, key))
        return self._store.get(PODS, key) or (creation.body if creation is not None else None)

    def _pod(self, namespace: str, name: str) -> Raw | None:
        return self._store.get(PODS, (namespace, name))

    def _update_expectations(self) -> set[Key]:
        """Update the expectations; return the pods that they concern."""
        before, self._counted_on = self._counted_on, self._expected()
        if before is self._counted_on:
            return set()
        places = {*before.creations, *before.deletions, *self._counted_on.creations, *self._counted_on.deletions}
        return {key for kind, key in places if kind == PODS}

    def _read_all(self, keys: set[Key], delta: ViewDelta[Pod, PodName]) -> None:
        """Parse these pods, and unreadable ones again; a failure concerns its job alone (A11)."""
        before = set(self._unread.values())
        again = {key for key, job in self._unread.items() if not self._errors.is_paused(job, GuardedTask.PODS)}
        failed: dict[JobName, Exception] = {}
        all_keys = keys | again
        masters = {
            key
            for key in all_keys
            if self._errors.attempt(object_key("pod", *key), GuardedTask.MASTER_NODES, partial(self._is_master, key))
        }
        for key in (*(all_keys - masters), *masters):  # masters last: their reservations depend on the other pods
            self._unread.pop(key, None)
            try:
                self._read(key, self._find(key), delta)
            except Exception as error:  # noqa: BLE001 - noted below, once for each job
                self._unread[key] = self._job_by_label.get(key) or object_key("pod", *key)
                failed[self._unread[key]] = error
                self._errors.attempt(object_key("pod", *key), GuardedTask.PODS, partial(self._occupy, key, delta))
        for job, last in failed.items():
            self._errors.record_failure(job, GuardedTask.PODS, last)
        for job in before.difference(self._unread.values()):
            self._errors.clear_failure(job, GuardedTask.PODS)

    def _occupy(self, key: Key, delta: ViewDelta[Pod, PodName]) -> None:
        """Let a pod that cannot be parsed occupy its capacity as an external one, unless it is known from before.

        It occupies its node, or the node that EDL tied it to, since the scheduler is about to bind it there.  An ended
        pod occupies nothing.
        """
        raw = self._store.get(PODS, key)
        if raw is not None and text(raw, "status", "phase") in ENDED_PHASES:
            self._remove(key, delta)
            return
        before = self._parsed.get(key)
        is_known = before is not None and (before.role is not Role.EXTERNAL or before.node is not None)
        if raw is None or is_known:
            return
        node = text(raw, "spec", "nodeName")
        pin = None if node or gates_of(raw) else split_node_pin(shape_of_spec(raw["spec"], part(raw, "status")))[1]
        if not node and pin is None:
            return
        self._parsed[key] = pod = Pod(
            name=PodName(f"{key[0]}/{key[1]}"),
            role=Role.EXTERNAL,
            tier=Tier.EXTERNAL,
            shape=occupied_shape(raw["spec"], part(raw, "status")),
            phase=PodPhase.STARTING if node else PodPhase.PENDING,
            node=NodeName(node) or None,
            nominated_node=pin,
            created_at_s=0.0,
        )
        delta.found.append(pod)

    def _read(self, key: Key, raw: Raw | None, delta: ViewDelta[Pod, PodName]) -> None:
        pod = None if raw is None else parse_pod(raw, self._context)
        self._successors.discard(key)
        if raw is None or pod is None:
            self._remove(key, delta)
            return
        if pod.phase is not PodPhase.TERMINATING and self._counted_on.is_leaving(PODS, raw):
            pod = replace(pod, phase=PodPhase.TERMINATING)
        if pod.role is Role.MASTER:
            pod = self._with_reserved_node(pod)
        elif pod.role is Role.SERVER and pod.job is not None and (old := find_replaced_pod(raw, self._pod)) is not None:
            self._successors.add(key)
            pod = as_replacement(pod, old, self._owning(pod.job))
        if self._parsed.get(key) != pod:
            check(pod)
            self._parsed[key] = pod
            delta.found.append(pod)

    def _remove(self, key: Key, delta: ViewDelta[Pod, PodName]) -> None:
        """Remove the pod from the view."""
        if self._parsed.pop(key, None) is not None:
            delta.gone.add(PodName(f"{key[0]}/{key[1]}"))

    def _index(self, key: Key, raw: Raw | None) -> set[JobName]:
        """Index the pod by the job that its label names; return the jobs concerned."""
        namespace = key[0]
        label = text(raw, "metadata", "labels", JOB) if raw is not None else ""
        after, before = (job_key(namespace, label) if label else None), self._job_by_label.pop(key, None)
        if before is not None and before != after:
            self._labelled[before].discard(key)
            if not self._labelled[before]:
                del self._labelled[before]
        if after is not None:
            self._job_by_label[key] = after
            self._labelled.setdefault(after, set()).add(key)
        return {job for job in (before, after) if job is not None}

    # ---- masters ------------------------------------------------------------------------------------------------

    def _read_masters(self, changes: ChangedKeys) -> set[JobName]:
        """Update which Deployments are masters; return the jobs concerned."""
        deployments, touched = self._store.objects(DEPLOYMENTS), set[JobName]()
        for key in changes.get(DEPLOYMENTS, ()):
            named = f"{key[0]}/{key[1]}"
            before = self._masters.pop(named, "")
            raw = deployments.get(key)
            owner = self._errors.attempt(
                object_key("master", *key), GuardedTask.READ, partial(job_of_master, raw or EMPTY)
            )
            after = owner or ""
            if after:
                self._masters[named] = after
            if before != after:
                namespace, name = key
                touched.add(job_key(namespace, name.removesuffix(master_name(""))))
        return touched

    def _number_masters(self, job: JobName) -> None:
        """Give each of the masters' pods an ordinal; known ones keep theirs."""
        uids = {text(raw, "metadata", "uid") for raw in self._master_pods(job)}
        known = {uid: self._ordinals[uid] for uid in uids if uid in self._ordinals}
        self._ordinals |= assign_master_ordinals(known, uids)
        if len(self._ordinals) > MOST_ORDINALS_KEPT:
            alive = {text(raw, "metadata", "uid") for raw in self._store.objects(PODS).values()}
            for uid in self._ordinals.keys() - alive:
                del self._ordinals[uid]

    def _master_pods(self, job: JobName) -> list[Raw]:
        return [raw for raw in self.of_job(job) if text(raw, "metadata", "labels", ROLE) == Role.MASTER.value]

    def _is_master(self, key: Key) -> bool:
        raw = self._find(key)
        return raw is not None and text(raw, "metadata", "labels", ROLE) == Role.MASTER.value

    def _with_reserved_node(self, pod: Pod) -> Pod:
        """Return a pending master's pod with its reserved node, until the scheduler has tried to place it."""
        if pod.job is None or pod.phase is not PodPhase.PENDING or pod.place or pod.unschedulable_since_s is not None:
            return pod
        nodes = self.master_nodes(pod.job)
        return replace(pod, nominated_node=nodes[pod.ordinal]) if pod.ordinal < len(nodes) else pod

    def _reserve_for_masters_of(self, job: JobName, known: KubeJob | None, delta: ViewDelta[Pod, PodName]) -> None:
        """Reserve capacity for masters that do not exist yet, or release it."""
        reservations: dict[PodName, Pod] = {}
        if known is not None:
            come = [self._ordinals.get(text(raw, "metadata", "uid")) for raw in self._master_pods(job)]
            shape = shapes_of(known)[Role.MASTER]
            nodes = self.master_nodes(job)[: known.spec.master.replicas]  # annotations can be edited
            free = [(ordinal, node) for ordinal, node in enumerate(nodes) if ordinal not in come]
            for ordinal, node in free[: max(0, len(nodes) - len(come))]:
                name = PodName(f"{job_key(known.namespace, master_name(known.name))}+{ordinal}")  # no pod can have it
                reservations[name] = Pod(
                    name=name,
                    role=Role.MASTER,
                    tier=Tier.CORE,
                    shape=shape,
                    phase=PodPhase.PENDING,
                    nominated_node=node,
                    job=job,
                    ordinal=ordinal,
                )
        before = self._reservations.pop(job, {})
        self._reserved_for.pop(job, None)
        delta.gone.update(before.keys() - reservations.keys())
        delta.found.extend(pod for name, pod in reservations.items() if before.get(name) != pod)
        if reservations:
            self._reservations[job], self._reserved_for[job] = reservations, known

    def _live_pods(self, job: JobName) -> Iterable[Raw]:
        """Yield the job's pods that are in the view and do not terminate."""
        for key in self._labelled.get(job, ()):
            pod, raw = self._parsed.get(key), self._find(key)
            if raw is not None and pod is not None and pod.job == job and pod.phase in SIZED:
                yield raw
