"""A second reader of what the watches bring: which jobs something has changed for.

The planner's views take the store's changes; whoever keeps jobs alive wants to know the jobs concerned.  Pods that are
gone say by their name whose they were; a wrong guess wakes a job for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.cache.object_cache import Key, Store
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.labels import JOB
from autoscaler.clusters.kubernetes.objects.names import job_key, master_name
from autoscaler.clusters.kubernetes.parsing.object_trimming import SLIMS
from autoscaler.domain import JobName, Role
from autoscaler.fault_isolation import JobErrors, Step


class FollowedStore(Store):
    """A store that tells, whenever its changes are taken, which jobs they concern.  Set `follow` once."""

    def __init__(self, errors: JobErrors, *, namespaces: Mapping[Kind, tuple[str, ...]] | None = None) -> None:
        super().__init__(errors, SLIMS, namespaces=namespaces)
        self.follow: Callable[[JobName], None] = _ignore

    def take_changes(self) -> Mapping[Kind, frozenset[Key]]:
        """See `Store.take_changes`."""
        found = super().take_changes()
        for name in self._concerned(found):
            with self._errors.around(name, Step.WAKE):
                self.follow(name)
        return found

    def _concerned(self, changes: Mapping[Kind, frozenset[Key]]) -> set[JobName]:
        names = {job_key(*key) for key in changes.get(TRAINING_JOBS, ())}
        suffix = master_name("")
        names |= {
            job_key(namespace, name.removesuffix(suffix))
            for namespace, name in changes.get(DEPLOYMENTS, ())
            if name.endswith(suffix)
        }
        for key in changes.get(PODS, ()):
            raw = self.get(PODS, key)
            said = _said_by_name(key[1]) if raw is None else text(raw, "metadata", "labels", JOB)
            if said:
                names.add(job_key(key[0], said))
        return names


def _said_by_name(pod: str) -> str:
    for role in (Role.TRAINER, Role.SERVER, Role.MASTER):
        job, found, _ = pod.rpartition(f"-{role.value}-")
        if found:
            return job
    return ""


def _ignore(_job: JobName) -> None:
    """Nobody follows yet."""
