"""Reads of a cluster's API server: objects by type and name, a job's pods, events, logs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.api_errors import unknown_kind
from autoscaler.cli.kubernetes.cluster_events import is_of_jobs, jobs_of, sort_by_time
from autoscaler.cli.kubernetes.object_watch import watch_objects
from autoscaler.cli.kubernetes.top_lines import Usage, UsedAmounts
from autoscaler.cli.output.object_tables import PlainObject
from autoscaler.cli.place_values import LogOptions, PodSelector
from autoscaler.clusters.kubernetes.api.api_port import Api, Listing, Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    EVENTS,
    NODE_GPUS,
    NODE_METRICS,
    NODES,
    POD_METRICS,
    PODS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, condition_of, controller_of, part, parts, text
from autoscaler.clusters.kubernetes.objects.labels import JOB, ORDINAL, ROLE
from autoscaler.clusters.kubernetes.objects.names import pod_name
from autoscaler.clusters.kubernetes.objects.resource_amounts import amounts_of
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.object_kinds import parse_object_kind
from autoscaler.domain import NOTHING, Resources, Role
from autoscaler.domain.gpu_reports import NodeGpuReport
from autoscaler.errors import ClusterError, InvalidSpecError
from autoscaler.gpus.report_documents import parse_report

KINDS: Final[Mapping[str, Kind]] = {
    "tj": TRAINING_JOBS,
    "node": NODES,
    "pod": PODS,
    "deployment": DEPLOYMENTS,
    "gpus": NODE_GPUS,
}

_JOBS_MAX_AGE_S: Final = 60.0  # the list of jobs is read again after this long
_LONGEST_HINT: Final = 200  # characters
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReader:
    """Reads of one cluster.  With `is_all_namespaces` listings are of all.  Raises ClusterError and CommandError."""

    api: Api
    namespace: str
    is_all_namespaces: bool = False

    def split(self, name: str) -> tuple[str, str]:
        """Namespace and name of `NAME` or `NAMESPACE/NAME`."""
        namespace, _, rest = name.rpartition("/")
        return namespace or self.namespace, rest

    async def find(self, kind: str, name: str) -> Raw:
        """The object of this name."""
        known = KINDS[kind]
        namespace, short = self.split(name)
        if not short:  # its path would be that of all objects
            raise CommandError(Exit.USAGE, f"{kind}/{name} ends before the name; write {kind}/NAME, or NAMESPACE/NAME")
        try:
            return await self.api.get(known, short, namespace=namespace if known.is_namespaced else None)
        except NotFoundError:
            where = f" in namespace {namespace}" if known.is_namespaced else ""
            hint = await self._hint(known, kind, namespace, short)
            raise CommandError(Exit.NOT_FOUND, f"there is no {kind}/{short}{where}{hint}") from None

    async def list_all(self, kind: str) -> Sequence[Raw]:
        """All objects of a type, in the namespace or in all."""
        return (await self.listing(KINDS[kind], self.scope())).items

    async def listing(self, kind: Kind, scope: Scope) -> Listing:
        """A listing; CommandError if the cluster does not have the kind."""
        try:
            return await self.api.list(kind, scope if kind.is_namespaced else Scope(labels=scope.labels))
        except NotFoundError as error:
            raise unknown_kind(kind, error) from None

    def scope(self) -> Scope:
        """Scope of a listing: the namespace, or all."""
        return Scope() if self.is_all_namespaces else Scope(namespace=self.namespace)

    async def requests_by_node(self) -> Mapping[str, Resources] | None:
        """Requests of the pods on each node; None if the user may not list all pods."""
        try:
            pods = (await self.api.list(PODS)).items
        except ClusterError:
            return None
        found: dict[str, Resources] = {}
        for raw in pods:
            node = text(raw, "spec", "nodeName")
            if node and text(raw, "status", "phase") not in ENDED_PHASES:
                found[node] = found.get(node, NOTHING) + pod_request(raw.get("spec", {}), raw.get("status", {}))
        return found

    async def pods_of_jobs(self) -> Sequence[Raw]:
        """The pods with EDL's label that the user may list."""
        for scope in (Scope(labels=JOB), Scope(namespace=self.namespace, labels=JOB)):
            with suppress(ClusterError):
                return (await self.api.list(PODS, scope)).items
        return ()

    async def reports(self) -> Sequence[NodeGpuReport]:
        """The agents' reports that can be read; none where NodeGpus is not defined."""
        try:
            listing = await self.api.list(NODE_GPUS)
        except NotFoundError:
            return ()
        found: list[NodeGpuReport] = []
        for raw in listing.items:
            with suppress(InvalidSpecError):
                if (report := parse_report(raw)) is not None:
                    found.append(report)
        return found

    async def usage(self) -> Usage:
        """Cores and memory in use, by the metrics API; empty without one, or without the right."""
        nodes = await self._metrics(NODE_METRICS)
        pods = await self._metrics(POD_METRICS)
        return Usage(
            nodes={text(one, "metadata", "name"): _used([part(one, "usage")]) for one in nodes},
            pods={
                f"{text(one, 'metadata', 'namespace')}/{text(one, 'metadata', 'name')}": _used(
                    [part(container, "usage") for container in parts(one, "containers")]
                )
                for one in pods
            },
        )

    async def _metrics(self, kind: Kind) -> Sequence[PlainObject]:
        """All objects of the metrics API, whose lists have no version and are read as one object."""
        try:
            return parts(await self.api.get(kind, ""), "items")
        except ClusterError:
            return ()

    # ---- pods ---------------------------------------------------------------------------------------------------

    async def pods_of(self, job: str) -> Sequence[Raw]:
        """The pods with the job's label."""
        namespace, short = self.split(job)
        return (await self.listing(PODS, Scope(namespace=namespace, labels=f"{JOB}={short}"))).items

    async def replicas_of(self, deployment: str) -> Sequence[Raw]:
        """The pods of the Deployment's ReplicaSets, which are named DEPLOYMENT-HASH."""
        namespace, short = self.split(deployment)
        pods = (await self.listing(PODS, Scope(namespace=namespace))).items
        return [raw for raw in pods if text(controller_of(raw), "name") == f"{short}-{_hash_of(raw)}"]

    async def pod_of(self, kind: str, name: str, selector: PodSelector) -> Raw:
        """The pod that TYPE/NAME and --trainer N, --server N or --master select."""
        if kind == "pod":
            return await self.find(kind, name)
        if kind != "tj":
            raise CommandError(Exit.USAGE, f"name a pod or a tj, not a {kind}")
        _, short = self.split(name)
        role = Role(selector.role or Role.TRAINER)
        pods = [raw for raw in await self.pods_of(name) if text(raw, "metadata", "labels", ROLE) == role.value]
        if selector.ordinal is not None:
            wanted = pod_name(short, role, selector.ordinal)
            found = [raw for raw in pods if text(raw, "metadata", "name") == wanted]
            if found:
                return found[0]
            await self.find("tj", name)
            there = ", ".join(text(raw, "metadata", "labels", ORDINAL) for raw in pods) or "none"
            raise CommandError(
                Exit.NOT_FOUND, f"tj/{short} has no {role} {selector.ordinal} now; {role}s that it has: {there}"
            )
        if not pods:
            await self.find("tj", name)
            raise CommandError(Exit.NOT_FOUND, f"tj/{short} has no {role} now; edl get pods lists the pods that it has")
        leader = ""
        if role is Role.MASTER:
            leader = text(await self.find("tj", name), "status", "master", "leader")
        return min(pods, key=lambda raw: _order(raw, leader))

    async def log(self, pod: Raw, options: LogOptions) -> AsyncIterator[bytes]:
        """The log of the pod's main container (`container_of`)."""
        written = self.api.log(
            text(pod, "metadata", "name"),
            namespace=text(pod, "metadata", "namespace"),
            container=container_of(pod),
            tail_lines=options.tail,
            is_followed=options.is_followed,
            is_previous=options.is_previous,
        )
        async with aclosing(written) as chunks:
            async for chunk in chunks:
                yield chunk

    # ---- events -------------------------------------------------------------------------------------------------

    async def events(self) -> Sequence[Raw]:
        """Events of the jobs and their pods that the cluster still has, the oldest first."""
        found = (await self.listing(EVENTS, self.scope())).items
        jobs = await self._jobs() | jobs_of(found)
        return sort_by_time(event for event in found if is_of_jobs(event, jobs))

    async def follow_events(self) -> AsyncGenerator[Raw, None]:
        """The same, followed by new events, also of new jobs."""
        jobs, listed_at_s = await self._jobs(), time.monotonic()
        async with aclosing(watch_objects(self.api, EVENTS, self.scope(), order=sort_by_time)) as events:
            async for event in events:
                if time.monotonic() - listed_at_s > _JOBS_MAX_AGE_S:
                    jobs, listed_at_s = jobs | await self._jobs(), time.monotonic()
                jobs |= jobs_of([event])
                if is_of_jobs(event, jobs):
                    yield event

    async def _hint(self, known: Kind, kind: str, namespace: str, name: str) -> str:
        """Hint with the names that the user may have meant."""
        from autoscaler.manifests.field_errors import did_you_mean  # noqa: PLC0415 - pydantic

        try:
            listing = await self.listing(known, Scope(namespace=namespace))
        except ClusterError:
            return ""  # a user who may not list still gets the message without the hint
        names = [text(one, "metadata", "name") for one in listing.items]
        if not names:
            return f"; there is no {kind} at all"
        hint = did_you_mean(name, names)
        return f"; {hint}" if len(hint) <= _LONGEST_HINT else f"; there are {len(names)} others: edl get {kind}"

    async def _jobs(self) -> set[tuple[str, str]]:
        listing = await self.listing(TRAINING_JOBS, self.scope())
        return {(text(raw, "metadata", "namespace"), text(raw, "metadata", "name")) for raw in listing.items}


def _used(amounts: Sequence[PlainObject]) -> UsedAmounts:
    each = [amounts_of(one) for one in amounts]
    return UsedAmounts(
        cpu_milli=sum(one.get("cpu", 0) for one in each), memory_bytes=sum(one.get("memory", 0) for one in each)
    )


def container_of(pod: Raw) -> str | None:
    """The container whose log is shown: of the annotation, else the one named like the role, else the first."""
    names = [text(container, "name") for container in parts(pod, "spec", "containers")]
    wanted = (text(pod, "metadata", "annotations", _DEFAULT_CONTAINER), text(pod, "metadata", "labels", ROLE))
    return next((name for name in (*wanted, *names) if name in names), None)


def parse_type(word: str) -> str:
    """The type that a user's word means.  Raises CommandError."""
    try:
        return parse_object_kind(word)
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from None


def _hash_of(pod: Raw) -> str:
    return text(pod, "metadata", "labels", "pod-template-hash")


def _order(pod: Raw, leader: str) -> tuple[bool, bool, int, str]:
    """Sort key: the leader first, then ready pods, then by number."""
    name = text(pod, "metadata", "name")
    number = name.rpartition("-")[2]
    is_ready = condition_of(pod, "Ready").get("status") == "True"
    return name != leader, not is_ready, int(number) if number.isdigit() else 0, name
