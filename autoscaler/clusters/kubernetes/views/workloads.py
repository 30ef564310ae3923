"""Other people's Deployments with their autoscalers, and the quotas of namespaces."""

from __future__ import annotations

from functools import partial

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, POD_AUTOSCALERS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from autoscaler.clusters.kubernetes.api.port import Raw
from autoscaler.clusters.kubernetes.building.names import split_key
from autoscaler.clusters.kubernetes.reading.priorities import PriorityClasses
from autoscaler.clusters.kubernetes.reading.quotas import read_quota
from autoscaler.clusters.kubernetes.reading.workloads import hpa_target, read_workload
from autoscaler.clusters.kubernetes.store import Key, Store
from autoscaler.clusters.kubernetes.views.brought import Brought, Changes
from autoscaler.domain import Quota, Reclaim, Workload, WorkloadName
from autoscaler.job_errors import JobErrors, Step, of_object


class Workloads:
    """The Deployments of the store."""

    def __init__(self, store: Store, errors: JobErrors) -> None:
        self._store = store
        self._errors = errors
        self._scalers: dict[Key, Raw] = {}
        self._read_as: dict[Key, Workload] = {}

    def read(self, changes: Changes, classes: PriorityClasses) -> Brought[Workload, WorkloadName]:
        """Return the workloads that are new or different."""
        raws, dirty = self._store.objects(DEPLOYMENTS), set(changes.get(DEPLOYMENTS, ()))
        if changes.get(POD_AUTOSCALERS):
            dirty |= self._read_scalers()
        if changes.get(PRIORITY_CLASSES):
            dirty |= raws.keys()
        brought: Brought[Workload, WorkloadName] = Brought()
        for key in dirty:
            with self._errors.around(of_object("deployment", *key), Step.READ):
                self._read(key, raws.get(key), classes, brought)
        return brought

    def _read(
        self, key: Key, raw: Raw | None, classes: PriorityClasses, brought: Brought[Workload, WorkloadName]
    ) -> None:
        workload = None if raw is None else read_workload(raw, self._scalers.get(key), classes)
        if workload is None:
            if self._read_as.pop(key, None) is not None:
                brought.gone.add(WorkloadName(f"{key[0]}/{key[1]}"))
        elif self._read_as.get(key) != workload:
            self._read_as[key] = workload
            brought.found.append(workload)

    def _read_scalers(self) -> set[Key]:
        """Find out anew which autoscaler is set upon what; return the Deployments concerned."""
        before, self._scalers = self._scalers, {}
        for key, raw in self._store.objects(POD_AUTOSCALERS).items():
            with self._errors.around(of_object("scaler", *key), Step.READ):
                if (workload := hpa_target(raw).workload) is not None:
                    self._scalers[split_key(workload)] = raw
        return {*before, *self._scalers}


def read_quotas(store: Store, reclaim: Reclaim, errors: JobErrors) -> tuple[Quota, ...]:
    """Return the quotas of all namespaces that count pods of EDL's."""
    found = (
        errors.attempt(of_object("quota", *key), Step.READ, partial(read_quota, raw, reclaim))
        for key, raw in store.objects(RESOURCE_QUOTAS).items()
    )
    return tuple(quota for quota in found if quota is not None)
