"""Deletion costs of others' pods: lowered so that an idle pod is the first to leave its ReplicaSet, and taken back.

A cost that is left low makes a replica that works again the first to leave, whoever scales next.  So the pod carries
its former cost beside the low one, for whoever leads after a leader that was stopped between the two.  A cost that
somebody else has written meanwhile is theirs, and stays.  `owner_scaling` decides which pod (ADR 0293).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.objects.fields import Raw, part, text
from autoscaler.clusters.kubernetes.objects.labels import DELETION_COST, FORMER_COST
from autoscaler.errors import ClusterError

LOWEST_COST: Final = str(-(2**31))
SETTLES_S: Final = 3.0
"""From the write of a cost to the scale: by then the controller of the ReplicaSet has seen it, unless overloaded."""

SWEEP_EVERY_S: Final = 60.0
LEFT_BEHIND_S: Final = 60.0
"""A cost of another term is taken back once seen for so long: its pod may be leaving by a scale of that term."""

MOST_AT_ONCE: Final = 8  # pods of one sweep

PodKey = tuple[str, str]  # namespace and name

log = logging.getLogger(__name__)


class CostState(StrEnum):
    """State of a pod's deletion cost, as the watch shows it."""

    OWN = "own"  # not lowered in this term
    WRITTEN = "written"  # lowered: not long enough ago, or the watch has not shown it
    LOWEST = "lowest"  # lowered, and its controller has seen that
    CHANGED = "changed"  # lowered, and somebody else has written another since


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """A pod whose cost this term lowered.  `is_seen`: the watch has shown it."""

    uid: str
    at_s: float
    is_seen: bool = False


class DeletionCosts:
    """Costs that one term lowered, and those that other terms left.  `cache` has the pods; `clock` runs evenly."""

    def __init__(self, api: Api, cache: ObjectCache, *, clock: Callable[[], float]) -> None:
        self._api, self._cache, self._clock = api, cache, clock
        self._marks: dict[PodKey, _Mark] = {}
        self._left_behind: dict[str, float] = {}  # since when seen, by UID
        self._next_sweep_s = -inf

    @property
    def lowered(self) -> Collection[PodKey]:
        """The pods whose cost this term lowered and has not taken back."""
        return self._marks.keys()

    def state_of(self, pod: Raw) -> CostState:
        """Return what the watch shows of a pod's cost."""
        key, mark = pod_key(pod), self._marks.get(pod_key(pod))
        if mark is None or mark.uid != text(pod, "metadata", "uid"):
            return CostState.OWN
        if cost_of(pod) == LOWEST_COST:
            self._marks[key] = replace(mark, is_seen=True)
            return CostState.LOWEST if self._clock() - mark.at_s >= SETTLES_S else CostState.WRITTEN
        return CostState.CHANGED if mark.is_seen or _has_former(pod) else CostState.WRITTEN

    async def lower(self, pod: Raw) -> None:
        """Give the pod the lowest cost, and note on it the cost that it has now.

        Raises ClusterError; a ConflictError if somebody else writes the pod at this moment.
        """
        key, uid = pod_key(pod), text(pod, "metadata", "uid")
        live = await self._api.get(PODS, key[1], namespace=key[0])
        former = text(live, "metadata", "annotations", FORMER_COST) if _has_former(live) else cost_of(live) or ""
        only = Preconditions(uid=uid, resource_version=text(live, "metadata", "resourceVersion") or None)
        self._marks[key] = _Mark(uid=uid, at_s=self._clock())  # before the write, which may happen unanswered
        change = {"metadata": {"annotations": {DELETION_COST: LOWEST_COST, FORMER_COST: former}}}
        await self._api.patch(PODS, key[1], change, namespace=key[0], only=only)

    async def take_back(self, wanted: Collection[PodKey]) -> None:
        """Restore the cost of each pod that this term lowered and that is not among `wanted`.

        A failure is logged, and tried again with the next call.
        """
        for key in [key for key in self._marks if key not in wanted]:
            if await self._try_restore(key, self._marks[key].uid):
                self._marks.pop(key, None)

    async def sweep(self) -> None:
        """Restore costs that other terms left behind, some at once; does nothing within `SWEEP_EVERY_S` of the last."""
        now_s = self._clock()
        if now_s < self._next_sweep_s:
            return
        self._next_sweep_s = now_s + SWEEP_EVERY_S
        keys = {
            text(pod, "metadata", "uid"): key
            for key, pod in self._cache.objects(PODS).items()
            if _has_former(pod) and self.state_of(pod) is CostState.OWN
        }
        self._left_behind = {uid: self._left_behind.get(uid, now_s) for uid in keys}
        due = [uid for uid, since_s in self._left_behind.items() if now_s - since_s >= LEFT_BEHIND_S]
        for uid in sorted(due, key=self._left_behind.__getitem__)[:MOST_AT_ONCE]:
            await self._try_restore(keys[uid], uid)
            self._left_behind[uid] = now_s  # one that failed waits for its turn again

    async def _try_restore(self, key: PodKey, uid: str) -> bool:
        """Give the pod its former cost if it still has the one that EDL wrote; return False to be asked again."""
        try:
            live = await self._api.get(PODS, key[1], namespace=key[0])
            is_same = text(live, "metadata", "uid") == uid
            if is_same and _has_former(live) and not text(live, "metadata", "deletionTimestamp"):
                only = Preconditions(uid=uid, resource_version=text(live, "metadata", "resourceVersion") or None)
                await self._api.patch(PODS, key[1], _restoring(live), namespace=key[0], only=only)
        except NotFoundError:
            return True
        except ClusterError as error:
            log.warning("the deletion cost of pod %s/%s is not taken back yet: %s", *key, error)
            return False
        return True


def pod_key(pod: Raw) -> PodKey:
    """Return a pod's namespace and name."""
    return text(pod, "metadata", "namespace"), text(pod, "metadata", "name")


def cost_of(pod: Raw) -> str | None:
    """Return a pod's deletion cost as written; None if it has none."""
    return text(pod, "metadata", "annotations", DELETION_COST) or None


def _has_former(pod: Raw) -> bool:
    return FORMER_COST in part(pod, "metadata", "annotations")


def _restoring(pod: Raw) -> dict[str, object]:
    """The change that takes EDL's note away, and the low cost if nobody else has written another."""
    annotations: dict[str, str | None] = {FORMER_COST: None}
    if cost_of(pod) == LOWEST_COST:
        former = text(pod, "metadata", "annotations", FORMER_COST)
        annotations[DELETION_COST] = former if _is_cost(former) else None
    return {"metadata": {"annotations": annotations}}


def _is_cost(written: str) -> bool:
    """True for what the API server takes as a cost: the note may be anybody's."""
    digits = written.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(LOWEST_COST)
    return is_number and -(2**31) <= int(written) < 2**31
