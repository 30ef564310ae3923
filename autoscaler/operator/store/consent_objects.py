"""Objects beside pods that may consent to unused GPUs being given back: Namespaces, StatefulSets and Deployments.

Their watch stands beside those of the view, as that of reports does.  Until its first list the default of a namespace
does not hold, and pods of StatefulSets keep their GPUs; where it fails later, the plan goes by what was seen last, and
the read before each deed by what is true.  Only names, controllers and the annotations about consent are kept.
Deployments and HorizontalPodAutoscalers are in the operator's cache anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw, Scope
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NAMESPACES, POD_AUTOSCALERS, STATEFUL_SETS, Kind
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cache.reflector import Reflector
from autoscaler.clusters.kubernetes.objects.fields import part, text
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
        self._scalers: dict[tuple[str, str, str], str] = {}
        self.watched: Final = ObjectCache(
            errors, dict.fromkeys(WATCHED, trim_consent), namespaces={STATEFUL_SETS: namespaces}
        )
        self._watch = Reflector(api, self.watched, WATCHED, now=clock, jitter=jitter, notify=lambda: None)

    async def run(self) -> None:
        """Follow Namespaces and StatefulSets until cancelled."""
        await self._watch.run()

    @property
    def is_synced(self) -> bool:
        """True once Namespaces and StatefulSets have been listed; never, if nobody follows them."""
        return self.watched.is_synced(WATCHED)

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

    def scaler(self, kind: Kind, namespace: str, name: str) -> str:
        """Return the name of a HorizontalPodAutoscaler that scales it, as of `renew_scalers`; empty: none does."""
        return self._scalers.get((namespace, kind.kind, name), "")

    def renew_scalers(self) -> None:
        """Look at all HorizontalPodAutoscalers once, in place of once for each pod."""
        found = self._cache.objects(POD_AUTOSCALERS).items()
        targets = ((key, part(raw, "spec", "scaleTargetRef")) for key, raw in found)
        self._scalers = {(key[0], text(one, "kind"), text(one, "name")): key[1] for key, one in targets}

    async def read_namespace(self, name: str) -> Raw:
        """Return the Namespace as the API server has it now.  Raises ClusterError."""
        return trim_consent(await self._api.get(NAMESPACES, name))

    async def read_workload(self, kind: Kind, namespace: str, name: str) -> Raw:
        """Return the whole Deployment or StatefulSet as the API server has it now.  Raises ClusterError."""
        return await self._api.get(kind, name, namespace=namespace)

    async def read_scalers(self, namespace: str) -> Sequence[Raw]:
        """Return the namespace's HorizontalPodAutoscalers as the API server has them now.  Raises ClusterError."""
        return (await self._api.list(POD_AUTOSCALERS, Scope(namespace=namespace))).items
