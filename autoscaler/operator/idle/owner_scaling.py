"""Takes one replica from the Deployment or StatefulSet of an idle pod, such that this pod is the one that leaves.

A StatefulSet deletes its highest ordinal.  A Deployment's ReplicaSet deletes pods that are not Ready, then the one with
the lowest deletion cost; the cost and the scale reach it by two watches.  So the cost is written first, and the scale
some seconds later, while all its pods are Ready, after everything that speaks for the deed was asked again.  A cost
that nothing came of is taken back.  A scale that somebody changed meanwhile is not written over (ADR 0293).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Subresource
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, Raw, condition_of, controller_of, integer, text
from autoscaler.clusters.kubernetes.objects.labels import DELETION_COST
from autoscaler.errors import ClusterError
from autoscaler.operator.idle.consent import owner_of
from autoscaler.operator.idle.owner_replicas import OwnerReplicas

LOWEST_COST: Final = str(-(2**31))
SETTLES_S: Final = 3.0
"""From the write of a cost to the scale: by then the controller of the ReplicaSet has seen it, unless overloaded."""

LONGEST_TRY_S: Final = 240.0
"""For an owner that is being scaled, or has a pod that is not Ready: then the pod is let be, and others are asked."""

log = logging.getLogger(__name__)


class Scaled(StrEnum):
    """What became of a pod's owner."""

    DONE = "done"  # one replica less
    LATER = "later"  # in a moment: it is being scaled, or the cost was only just written
    REFUSED = "refused"  # not this pod, or not now


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    """A pod whose deletion cost was lowered; `former`: what it was, None: nothing."""

    uid: str
    former: str | None
    at_s: float


class OwnerScaling:
    """Scales owners of idle pods by one.  `cache` has the pods; `clock` runs evenly."""

    def __init__(self, api: Api, cache: ObjectCache, *, clock: Callable[[], float]) -> None:
        self._api, self._cache, self._clock = api, cache, clock
        self._marked: dict[tuple[str, str], _Marked] = {}  # by namespace and name
        self._tried_since_s: dict[tuple[str, str], float] = {}  # by the same

    async def try_scale(self, pod: Raw, replicas: OwnerReplicas) -> Scaled:
        """Take one replica from the pod's owner, if this pod is the one that would leave.  Raises ClusterError.

        `replicas`: what its owner wants, read a moment ago.
        """
        key, done = _key_of(pod), await self._try_now(pod, replicas)
        if done is Scaled.LATER:
            since_s = self._tried_since_s.setdefault(key, self._clock())
            return Scaled.REFUSED if self._clock() - since_s > LONGEST_TRY_S else done
        if done is Scaled.DONE:
            self._marked.pop(key, None)  # it takes its cost along
        return done

    async def take_back(self, wanted: Collection[tuple[str, str]]) -> None:
        """Forget the pods that are not among `wanted` (namespace and name), and restore their cost.

        A failure is tried again.
        """
        self._tried_since_s = {key: since_s for key, since_s in self._tried_since_s.items() if key in wanted}
        for key in [key for key in self._marked if key not in wanted]:
            marked = self._marked[key]
            change = {"metadata": {"annotations": {DELETION_COST: marked.former}}}
            try:
                await self._api.patch(PODS, key[1], change, namespace=key[0], only=Preconditions(uid=marked.uid))
            except NotFoundError:
                pass
            except ClusterError as error:
                log.warning("the deletion cost of pod %s/%s is not taken back yet: %s", *key, error)
                continue
            del self._marked[key]

    async def _try_now(self, pod: Raw, replicas: OwnerReplicas) -> Scaled:
        owner, namespace = owner_of(pod), _key_of(pod)[0]
        if owner is None:
            return Scaled.REFUSED
        scale = await self._api.get(owner.kind, owner.name, namespace=namespace, subresource=Subresource.SCALE)
        count, there = integer(scale, "spec", "replicas"), integer(scale, "status", "replicas")
        if text(scale, "metadata", "uid") != replicas.owner_uid or count <= replicas.minimum or there < count:
            return Scaled.REFUSED  # another of that name, which nobody asked; or one that does not count this pod
        if there > count:
            return Scaled.LATER  # it is being scaled, or updated: a new pod may compute already
        if owner.kind == STATEFUL_SETS:
            if replicas.ordinal != count - 1:
                return Scaled.REFUSED
        elif count > 1 and (waits := await self._lower_cost(pod, count)) is not None:
            return waits
        only = Preconditions(resource_version=text(scale, "metadata", "resourceVersion") or None)
        change = {"spec": {"replicas": count - 1}}
        await self._api.patch(
            owner.kind, owner.name, change, namespace=namespace, only=only, subresource=Subresource.SCALE
        )
        return Scaled.DONE

    async def _lower_cost(self, pod: Raw, count: int) -> Scaled | None:
        """Make this pod the first to leave; return what keeps its owner from being scaled now, None: nothing."""
        beside = self._pods_beside(pod)
        if len(beside) != count - 1 or not all(_is_ready(one) for one in (pod, *beside)):
            return Scaled.LATER  # those that are not Ready would leave first
        rivals = [_key_of(one) for one in beside if _cost_of(one) == LOWEST_COST]
        if rivals:  # it may leave in place of this one
            return Scaled.LATER if all(rival in self._marked for rival in rivals) else Scaled.REFUSED
        key, uid = _key_of(pod), text(pod, "metadata", "uid")
        marked = self._marked.get(key)
        if marked is None or marked.uid != uid:
            former = None if _cost_of(pod) == LOWEST_COST else _cost_of(pod)  # of a leader that was stopped here
            change = {"metadata": {"annotations": {DELETION_COST: LOWEST_COST}}}
            await self._api.patch(PODS, key[1], change, namespace=key[0], only=Preconditions(uid=uid))
            self._marked[key] = _Marked(uid=uid, former=former, at_s=self._clock())
            return Scaled.LATER
        has_settled = self._clock() - marked.at_s >= SETTLES_S and _cost_of(pod) == LOWEST_COST
        return None if has_settled else Scaled.LATER

    def _pods_beside(self, pod: Raw) -> Sequence[Raw]:
        """Return the other pods of its ReplicaSet that are there and not leaving."""
        replica_set, (namespace, name) = text(controller_of(pod), "uid"), _key_of(pod)
        return [
            raw
            for key, raw in self._cache.objects(PODS).items()
            if key[0] == namespace
            and key[1] != name
            and text(controller_of(raw), "uid") == replica_set
            and not text(raw, "metadata", "deletionTimestamp")
            and text(raw, "status", "phase") not in ENDED_PHASES
        ]


def _key_of(pod: Raw) -> tuple[str, str]:
    return text(pod, "metadata", "namespace"), text(pod, "metadata", "name")


def _is_ready(pod: Raw) -> bool:
    return text(condition_of(pod, "Ready"), "status") == "True"


def _cost_of(pod: Raw) -> str | None:
    return text(pod, "metadata", "annotations", DELETION_COST) or None
