"""Pod writes that may be lost, repeated or interrupted: pod names are fixed, and every write names the pod's UID.

The answer to a write is cached at once, so that the next view contains it.  This module decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import ceil

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Raw
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, NotFoundError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod, ungate_patch
from autoscaler.clusters.kubernetes.cache.expectations import Expectations
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, check_fresh
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, key_of, text
from autoscaler.clusters.kubernetes.objects.labels import (
    GATE,
    JOB,
    MASTER_NODES,
    ORDINAL,
    REPLACES,
    ROLE,
    TIER,
)
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec, split_node_pin
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.clusters.kubernetes.writes.object_ownership import NameTakenError, is_own
from autoscaler.domain import CreatePod, NodeName
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import JobErrors


class PodWriter:
    """Writes the pods of all jobs.  Every write raises ClusterError; on a stale view before it is sent."""

    def __init__(
        self, api: Api, store: ObjectCache, settings: BuildSettings, *, clock: Callable[[], float], errors: JobErrors
    ) -> None:
        self._errors = errors
        self._api = api
        self._store = store
        self._settings = settings
        self._clock = clock
        self._expected = Expectations()

    def expected(self) -> Expectations:
        """Return the own writes that no watch has shown yet."""
        self._expected = self._expected.settled(self._store.get, now_s=self._clock(), errors=self._errors)
        return self._expected

    async def create_tied(
        self, job: KubeJob, placement: CreatePod, *, avoid: frozenset[NodeName], replaces: str = ""
    ) -> None:
        """Create the pod, tied to the placement's node; an earlier attempt may have created it.

        `replaces`: the server that it replaces (`parsing.server_replacement`).
        """
        body = build_pod(job, placement, self._settings, is_gated=False, avoid=avoid)
        if replaces:
            body["metadata"].setdefault("annotations", {})[REPLACES] = replaces
        raw = await self._create(job, body)
        if GATE in gates_of(raw):
            await self.ungate(raw, placement.node)
        elif text(raw, "spec", "nodeName") != placement.node and pinned_node(raw) != placement.node:
            raise NameTakenError(f"pod {key_of(raw)} exists and is tied to another node than {placement.node}")

    async def create_gated(
        self, job: KubeJob, placement: CreatePod, *, avoid: frozenset[NodeName], masters: tuple[NodeName, ...]
    ) -> Raw:
        """Create the pod behind the gang's scheduling gate, and return it.  `masters`: nodes reserved for masters."""
        body = build_pod(job, placement, self._settings, is_gated=True, avoid=avoid)
        if masters:
            body["metadata"].setdefault("annotations", {})[MASTER_NODES] = ",".join(masters)
        return await self._create(job, body)

    async def ungate(self, raw: Raw, node: NodeName) -> None:
        """Remove the gang's gate and tie the pod to the node, in one write to this very object."""
        check_fresh(self._store, self._clock())
        metadata = raw["metadata"]
        written = await self._api.patch(
            PODS,
            metadata["name"],
            ungate_patch(raw, node),
            namespace=metadata["namespace"],
            only=Preconditions(uid=metadata["uid"], resource_version=metadata["resourceVersion"]),
        )
        self._store.put_written(PODS, written)

    async def delete(self, raw: Raw, *, grace_s: float | None = None) -> None:
        """Delete this very pod; None: within its own grace period.  A pod that is gone is no error.

        Raises ConflictError if the pod has changed since this was decided: it may have been bound meanwhile.
        """
        check_fresh(self._store, self._clock())
        metadata = raw["metadata"]
        with suppress(NotFoundError):  # gone already; the watch will show it
            await self._api.delete(
                PODS,
                metadata["name"],
                namespace=metadata["namespace"],
                only=Preconditions(uid=metadata["uid"], resource_version=metadata["resourceVersion"]),
                grace_s=None if grace_s is None else ceil(grace_s),
            )
        self._expected = self._expected.with_deletion(PODS, raw, now_s=self._clock())

    async def _create(self, job: KubeJob, body: Raw) -> Raw:
        """Create the pod; its capacity counts as taken from now on, since other writes are in flight."""
        check_fresh(self._store, self._clock())
        metadata = body["metadata"]
        self._expected = self._expected.with_creation(PODS, body, now_s=self._clock())
        try:
            raw = await self._api.create(PODS, body)
        except ClusterError as error:
            if not (isinstance(error, UnavailableError) and error.may_have_happened):
                self._expected = self._expected.without_creation(PODS, body)
            if not isinstance(error, AlreadyExistsError):
                raise
            raw = await self._api.get(PODS, metadata["name"], namespace=metadata["namespace"])
            check_same(raw, job, body)
        self._store.put_written(PODS, raw)
        return raw


def check_same(raw: Raw, job: KubeJob, body: Raw) -> None:
    """Raise NameTakenError unless this is the pod that was to be created, alive and not terminating."""
    key = key_of(raw)
    if not is_own(raw, job):
        raise NameTakenError(f"pod {key} exists and is not owned by this job")
    if raw["metadata"].get("deletionTimestamp"):
        raise NameTakenError(f"pod {key} is still terminating")
    if text(raw, "status", "phase") in ENDED_PHASES:
        raise NameTakenError(f"pod {key} has ended, and EDL has not handled its end yet")
    for label in (JOB, ROLE, ORDINAL, TIER):
        found, wanted = text(raw, "metadata", "labels", label), text(body, "metadata", "labels", label)
        if found != wanted:
            raise NameTakenError(f"pod {key} has the label {label}={found} instead of {wanted}; restore it")


def pinned_node(raw: Raw) -> NodeName | None:
    """Return the node to which EDL tied the pod."""
    return split_node_pin(shape_of_spec(raw["spec"], raw.get("status") or {}))[1]
