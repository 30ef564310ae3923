"""Takes one replica from the Deployment or StatefulSet of an idle pod, such that this pod is the one that leaves.

A StatefulSet deletes its highest ordinal.  A Deployment's ReplicaSet deletes pods that are not Ready, then the one with
the lowest deletion cost; the cost and the scale reach it by two watches.  So the cost is written first, and the scale
some seconds later, while all its pods are Ready, after everything that speaks for the deed was asked again.  A scale
that somebody changed meanwhile is not written over.  `deletion_costs` writes costs and takes them back (ADR 0293).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from math import inf
from typing import Final, assert_never

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Subresource
from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, Raw, condition_of, controller_of, integer, text
from autoscaler.operator.idle.consent import owner_of
from autoscaler.operator.idle.deletion_costs import (
    LOWEST_COST,
    SETTLES_S,
    CostState,
    DeletionCosts,
    PodKey,
    cost_of,
    pod_key,
)
from autoscaler.operator.idle.owner_replicas import OwnerReplicas

LONGEST_TRY_S: Final = 240.0
"""For an owner that is being scaled, or has a pod that is not Ready: then the pod is let be, and others are asked."""

AGREED_FOR_S: Final = 0.5
"""From the last look at a pod to the scale of its owner: with a request's time a veto counts within a second."""

LATER_S: Final = 10.0  # until such an owner is asked again


class Scaled(StrEnum):
    """What became of a pod's owner."""

    DONE = "done"  # one replica less
    LOWERED = "lowered"  # the pod's cost was written; the scale comes once its controller has seen it
    LATER = "later"  # in a moment: it is being scaled, or has a pod that is not Ready
    REFUSED = "refused"  # not this pod, or not now


class OwnerScaling:
    """Scales owners of idle pods by one.  `cache` has the pods; `clock` runs evenly."""

    def __init__(self, api: Api, cache: ObjectCache, *, clock: Callable[[], float]) -> None:
        self._api, self._cache, self._clock = api, cache, clock
        self._costs = DeletionCosts(api, cache, clock=clock)
        self._tried_since_s: dict[PodKey, float] = {}
        self._again_at_s: dict[str, float] = {}  # when an owner is asked again, by the UID of its pods' controller

    def is_waiting(self, pod: Raw) -> bool:
        """True while the pod's owner is not to be asked: it was a moment ago, or another of its pods is to leave."""
        if self._clock() < self._again_at_s.get(_controller_uid(pod), -inf):
            return True
        own = pod_key(pod)
        others = (self._cache.get(PODS, key) for key in self._costs.lowered if key != own and key[0] == own[0])
        return any(one is not None and _controller_uid(one) == _controller_uid(pod) for one in others)

    def judge(self, pod: Raw, replicas: OwnerReplicas) -> Scaled | None:
        """Return what the watches alone show to keep the owner from being scaled for this pod now; None: nothing.

        `replicas`: what the owner wants, as watched.
        """
        if replicas.ordinal is not None or replicas.count <= 1:
            return None
        beside = self._pods_beside(pod)
        if self._costs.state_of(pod) is CostState.CHANGED:
            return Scaled.REFUSED
        # Those that are not Ready would leave first.
        is_settled = len(beside) == replicas.count - 1 and all(_is_ready(one) for one in (pod, *beside))
        return None if is_settled else self._put_off(pod)

    async def try_scale(self, pod: Raw, replicas: OwnerReplicas, *, version: str) -> Scaled:
        """Take one replica from the pod's owner, if this pod is the one that would leave.  Raises ClusterError.

        `replicas`: what its owner wants, read a moment ago; `version`: of the pod as it agreed.  Of another version
        somebody may have said no, as after `AGREED_FOR_S`: then everything is asked again later.
        """
        done = await self._try_now(pod, replicas, version)
        if done is Scaled.LOWERED:
            self._again_at_s[_controller_uid(pod)] = self._clock() + SETTLES_S
        return self._put_off(pod) if done is Scaled.LATER else done

    async def take_back(self, wanted: Collection[PodKey]) -> None:
        """Forget the pods that are not among `wanted`, and restore their cost, if they have the one that EDL wrote.

        A failure is tried again.
        """
        now_s = self._clock()
        self._tried_since_s = {key: since_s for key, since_s in self._tried_since_s.items() if key in wanted}
        self._again_at_s = {uid: again_at_s for uid, again_at_s in self._again_at_s.items() if now_s < again_at_s}
        await self._costs.take_back(wanted)

    async def sweep(self) -> None:
        """Restore costs that other terms left behind, some of them each minute."""
        await self._costs.sweep()

    def _put_off(self, pod: Raw) -> Scaled:
        """Ask the owner again in a while, unless the pod has waited for it for too long."""
        now_s = self._clock()
        self._again_at_s[_controller_uid(pod)] = now_s + LATER_S
        since_s = self._tried_since_s.setdefault(pod_key(pod), now_s)
        return Scaled.REFUSED if now_s - since_s > LONGEST_TRY_S else Scaled.LATER

    async def _try_now(self, pod: Raw, replicas: OwnerReplicas, version: str) -> Scaled:
        owner, namespace = owner_of(pod), pod_key(pod)[0]
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
        if not await self._still_agrees(pod, version):
            return Scaled.LATER
        only = Preconditions(resource_version=text(scale, "metadata", "resourceVersion") or None)
        change = {"spec": {"replicas": count - 1}}
        await self._api.patch(
            owner.kind, owner.name, change, namespace=namespace, only=only, subresource=Subresource.SCALE
        )
        return Scaled.DONE

    async def _still_agrees(self, pod: Raw, version: str) -> bool:
        """True if the pod was of this version at most `AGREED_FOR_S` ago: a scale cannot depend on it."""
        asked_at_s, (namespace, name) = self._clock(), pod_key(pod)
        live = await self._api.get(PODS, name, namespace=namespace)
        return text(live, "metadata", "resourceVersion") == version and self._clock() - asked_at_s <= AGREED_FOR_S

    async def _lower_cost(self, pod: Raw, count: int) -> Scaled | None:
        """Make this pod the first to leave; return what keeps its owner from being scaled now, None: nothing."""
        beside, state = self._pods_beside(pod), self._costs.state_of(pod)
        if state is CostState.CHANGED:
            return Scaled.REFUSED  # somebody else orders these pods
        if len(beside) != count - 1 or not all(_is_ready(one) for one in (pod, *beside)):
            return Scaled.LATER
        rivals = [pod_key(one) for one in beside if cost_of(one) == LOWEST_COST]
        if rivals:  # it may leave in place of this one
            return Scaled.LATER if all(rival in self._costs.lowered for rival in rivals) else Scaled.REFUSED
        match state:
            case CostState.OWN:
                try:
                    await self._costs.lower(pod)
                except ConflictError:
                    return Scaled.LATER
                return Scaled.LOWERED
            case CostState.WRITTEN:
                return Scaled.LATER
            case CostState.LOWEST:
                return None
            case _:
                assert_never(state)

    def _pods_beside(self, pod: Raw) -> Sequence[Raw]:
        """Return the other pods of its ReplicaSet that are there and not leaving."""
        replica_set, (namespace, name) = _controller_uid(pod), pod_key(pod)
        return [
            raw
            for key, raw in self._cache.objects(PODS).items()
            if key[0] == namespace
            and key[1] != name
            and _controller_uid(raw) == replica_set
            and not text(raw, "metadata", "deletionTimestamp")
            and text(raw, "status", "phase") not in ENDED_PHASES
        ]


def _controller_uid(pod: Raw) -> str:
    return text(controller_of(pod), "uid")


def _is_ready(pod: Raw) -> bool:
    return text(condition_of(pod, "Ready"), "status") == "True"
