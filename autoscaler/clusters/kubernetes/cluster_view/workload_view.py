"""Web workloads in the view: Deployments of others with their autoscalers, and quotas of namespaces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, POD_AUTOSCALERS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from autoscaler.clusters.kubernetes.cache.object_cache import Key, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view.view_delta import ChangedKeys, ViewDelta
from autoscaler.clusters.kubernetes.objects.fields import integer
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.clusters.kubernetes.parsing.deployment_objects import hpa_target, parse_workload
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses
from autoscaler.clusters.kubernetes.parsing.resource_quotas import parse_quota
from autoscaler.domain import Quota, Reclaim, Workload, WorkloadName
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key

ANNOUNCED_S: Final = 20.0
"""How long capacity is kept for replicas that do not come; a controller creates the first within a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedGrowth:
    """Growth that a workload has announced: since when, and how many pods it had created."""

    created_pods: int
    since_s: float


class TrackedWorkloads:
    """The Deployments of the cache.

    Announced growth counts for `ANNOUNCED_S` after the last new replica.  A user who may write Deployments could
    otherwise announce replicas that never come, at no quota, and block capacity for ever (A11).  Growth that no
    longer counts counts again once a replica has come; until then its pods count as they come.
    """

    def __init__(self, store: ObjectCache, errors: JobErrors) -> None:
        self._store = store
        self._errors = errors
        self._scalers: dict[Key, Raw] = {}
        self._read_as: dict[Key, Workload] = {}
        self._announced: dict[Key, AnnouncedGrowth] = {}

    def parse_changes(
        self, changes: ChangedKeys, classes: PriorityClasses, now_s: float
    ) -> ViewDelta[Workload, WorkloadName]:
        """Return the workloads that are new or different."""
        raws, dirty = self._store.objects(DEPLOYMENTS), set(changes.get(DEPLOYMENTS, ()))
        if changes.get(POD_AUTOSCALERS):
            dirty |= self._read_scalers()
        if changes.get(PRIORITY_CLASSES):
            dirty |= raws.keys()
        dirty |= {key for key, announced in self._announced.items() if self._is_expired(key, announced, now_s)}
        delta: ViewDelta[Workload, WorkloadName] = ViewDelta()
        for key in dirty:
            with self._errors.isolate(object_key("deployment", *key), GuardedTask.READ):
                self._read(key, raws.get(key), classes, now_s, delta)
        return delta

    def _read(
        self,
        key: Key,
        raw: Raw | None,
        classes: PriorityClasses,
        now_s: float,
        delta: ViewDelta[Workload, WorkloadName],
    ) -> None:
        workload = None if raw is None else parse_workload(raw, self._scalers.get(key), classes)
        if raw is not None and workload is not None:
            workload = self._without_expired_growth(key, workload, integer(raw, "status", "replicas"), now_s)
        if workload is None:
            self._announced.pop(key, None)
            if self._read_as.pop(key, None) is not None:
                delta.gone.add(WorkloadName(f"{key[0]}/{key[1]}"))
        elif self._read_as.get(key) != workload:
            self._read_as[key] = workload
            delta.found.append(workload)

    def _without_expired_growth(self, key: Key, workload: Workload, made: int, now_s: float) -> Workload:
        """Return the workload without growth that was announced too long ago."""
        announced = self._announced.pop(key, None)
        if announced is not None and made <= announced.created_pods:
            announced = self._announced[key] = replace(announced, created_pods=made)  # none came, some may have gone
        elif workload.desired_replicas > made:
            announced = self._announced[key] = AnnouncedGrowth(created_pods=made, since_s=now_s)
        if announced is None or workload.desired_replicas <= made:
            return workload
        if now_s < announced.since_s + ANNOUNCED_S:
            return workload
        return replace(workload, desired_replicas=made, max_replicas=min(made, workload.max_replicas))

    def _is_expired(self, key: Key, announced: AnnouncedGrowth, now_s: float) -> bool:
        """True if the workload's growth still counts and has now expired."""
        known = self._read_as.get(key)
        return (
            known is not None
            and known.desired_replicas > announced.created_pods
            and now_s >= announced.since_s + ANNOUNCED_S
        )

    def _read_scalers(self) -> set[Key]:
        """Read the targets of all autoscalers again; return the Deployments concerned."""
        before, self._scalers = self._scalers, {}
        for key, raw in self._store.objects(POD_AUTOSCALERS).items():
            with self._errors.isolate(object_key("scaler", *key), GuardedTask.READ):
                if (workload := hpa_target(raw).workload) is not None:
                    self._scalers[split_key(workload)] = raw
        return {*before, *self._scalers}


def read_quotas(store: ObjectCache, reclaim: Reclaim, errors: JobErrors) -> tuple[Quota, ...]:
    """Return the quotas of all namespaces that count pods of EDL."""
    found = (
        errors.attempt(object_key("quota", *key), GuardedTask.READ, partial(parse_quota, raw, reclaim))
        for key, raw in store.objects(RESOURCE_QUOTAS).items()
    )
    return tuple(quota for quota in found if quota is not None)
