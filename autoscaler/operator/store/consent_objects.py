"""Objects beside pods that may consent to unused GPUs being given back: Namespaces, StatefulSets and Deployments.

Their watch stands beside those of the view, as that of reports does: where it fails, the default of a namespace does
not hold, and pods of StatefulSets keep their GPUs.  Only names, controllers and the annotations about consent are kept.
Deployments are in the operator's cache anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NAMESPACES, STATEFUL_SETS, Kind
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cache.reflector import Reflector
from autoscaler.clusters.kubernetes.parsing.object_trimming import trim_consent
from autoscaler.fault_isolation import JobErrors

WATCHED: Final = (NAMESPACES, STATEFUL_SETS)


class ConsentObjects:
    """The newest state of each object that may consent.  `run` follows them until cancelled.

    `namespaces`: where EDL may write; empty: everywhere.
    """

    def __init__(
        self,
        api: Api,
        cache: ObjectCache,
        errors: JobErrors,
        *,
        namespaces: tuple[str, ...],
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._api, self._cache, self._namespaces = api, cache, namespaces
        self.watched: Final = ObjectCache(
            errors, dict.fromkeys(WATCHED, trim_consent), namespaces={STATEFUL_SETS: namespaces}
        )
        self._watch = Reflector(api, self.watched, WATCHED, now=clock, jitter=jitter, notify=lambda: None)

    async def run(self) -> None:
        """Follow Namespaces and StatefulSets until cancelled."""
        await self._watch.run()

    def may_write_in(self, namespace: str) -> bool:
        """True if EDL may change something there."""
        return not self._namespaces or namespace in self._namespaces

    def namespace(self, name: str) -> Raw | None:
        """Return the Namespace; None if it is not known."""
        return self.watched.get(NAMESPACES, ("", name))

    def workload(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """Return the Deployment or StatefulSet; None if it is not known."""
        cache = self._cache if kind == DEPLOYMENTS else self.watched
        return cache.get(kind, (namespace, name))

    async def read_namespace(self, name: str) -> Raw:
        """Return the Namespace as the API server has it now.  Raises ClusterError."""
        return trim_consent(await self._api.get(NAMESPACES, name))

    async def read_workload(self, kind: Kind, namespace: str, name: str) -> Raw:
        """Return the Deployment or StatefulSet as the API server has it now.  Raises ClusterError."""
        return trim_consent(await self._api.get(kind, name, namespace=namespace))
