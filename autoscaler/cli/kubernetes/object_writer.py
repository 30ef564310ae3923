"""Writes of commands to a cluster: each is conditional on the version that was read, and returns the line to print."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.object_reader import KINDS, ObjectReader
from autoscaler.cli.place_values import PodSelector, SizeChange, SizeRequest, format_size_changes
from autoscaler.clusters.kubernetes.api.api_port import ANY, Preconditions, Propagation, Raw, Scope, Subresource
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.fields import condition_of, part, text
from autoscaler.clusters.kubernetes.objects.labels import COMPARE, DRAIN, JOB, ROLE
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.resize_state import parse_resize_state
from autoscaler.clusters.kubernetes.writes.pod_keep import write_keep
from autoscaler.clusters.resize_requests import find_size_problem
from autoscaler.domain import Role
from autoscaler.errors import InvalidSpecError

_MOST_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Writes to one cluster.  Raises ClusterError and CommandError; then nothing has changed.

    `empties_nodes`: a drain also evicts the pods that the planner does not move, as `kubectl drain` does on a cluster.
    `server_now_s`: Unix time by the cluster's clock, which is known once something was read.
    """

    reader: ObjectReader
    empties_nodes: bool = False
    server_now_s: Callable[[], float] = time.time

    async def create_job(self, body: Raw) -> str:
        """Create a TrainingJob in the namespace that it names."""
        name = text(body, "metadata", "name")
        try:
            await self.reader.api.create(TRAINING_JOBS, body)
        except AlreadyExistsError:
            raise CommandError(
                Exit.REFUSED, f"tj/{name} is there already; choose another --name, or edl delete tj/{name} before"
            ) from None
        return f"tj/{name} created"

    async def scale(self, kind: str, name: str, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        """Set sizes through /scale, as autoscalers do; servers through the job's spec, in one write with trainers."""
        options = {"deployment": ("replicas",), "tj": ("trainers", "servers")}.get(kind)
        if options is None:
            raise CommandError(Exit.USAGE, f"a {kind} has no size; scale a deployment or a tj")
        if any(size.field not in options for size in sizes):
            flags = " or ".join(f"--{option} N" for option in options)
            raise CommandError(Exit.USAGE, f"the size of a {kind} is set with {flags}")
        found, tries = await self.reader.find(kind, name), 0
        while True:
            try:
                return await self._scale(kind, found, sizes, is_dry=is_dry)
            except ConflictError:  # another client wrote first: retry with the newest version
                tries, newest = tries + 1, await self.reader.find(kind, name)
                if tries == _MOST_TRIES or text(newest, "metadata", "uid") != text(found, "metadata", "uid"):
                    raise
                found = newest

    async def _scale(self, kind: str, found: Raw, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        if kind == "tj":
            _check_unfinished(found)
            for size in sizes:
                _check_size(found, size)
        if not is_dry:
            await self._write_sizes(kind, found, sizes)
        ongoing = [(size, parse_resize_state(found, size.field)) for size in sizes]
        changes = [SizeChange(request=size, before=it.present, note=it.describe(size.count)) for size, it in ongoing]
        return format_size_changes(f"{kind}/{text(found, 'metadata', 'name')}", changes, is_dry=is_dry)

    async def _write_sizes(self, kind: str, found: Raw, sizes: Sequence[SizeRequest]) -> None:
        counts = {size.field: size.count for size in sizes}
        by_scale = "servers" not in counts
        fields = {"servers": "parameterServer", "trainers": "trainer"}
        await self.reader.api.patch(
            TRAINING_JOBS if kind == "tj" else DEPLOYMENTS,
            text(found, "metadata", "name"),
            {"spec": {"replicas": sizes[0].count}}
            if by_scale
            else {"spec": {fields[of]: {"replicas": count} for of, count in counts.items()}},
            namespace=text(found, "metadata", "namespace"),
            subresource=Subresource.SCALE if by_scale else None,
            only=ANY
            if by_scale
            else Preconditions(
                uid=text(found, "metadata", "uid"), resource_version=text(found, "metadata", "resourceVersion")
            ),
        )

    async def drain(self, kind: str, name: str, selector: PodSelector, *, is_dry: bool) -> str:
        """Delete a pod with its own grace period, or label a node so that EDL's pods leave it."""
        if kind == "deployment":
            raise CommandError(Exit.USAGE, "a deployment is scaled, not drained; name a node, a pod or a tj")
        if kind == "node":
            found = await self.reader.find(kind, name)
            if is_dry:
                return f"node/{name} would be drained (dry run)"
            await self._set_drain_label(found, "true")
            if self.empties_nodes:
                await self._evict_others(name)
            whose = "all" if self.empties_nodes else "EDL's"
            return f"node/{name} is draining: {whose} pods leave it"
        pod = await self.reader.pod_of(kind, name, selector)
        if not is_dry:
            await self._delete("pod", pod)
        return f"pod/{text(pod, 'metadata', 'name')} {'would be drained (dry run)' if is_dry else 'is draining'}"

    async def _evict_others(self, node: str) -> None:
        """Delete the node's pods other than trainers and servers, which the planner moves."""
        for pod in (await self.reader.listing(PODS, Scope(fields=f"spec.nodeName={node}"))).items:
            if text(pod, "metadata", "labels", ROLE) not in {Role.TRAINER, Role.SERVER}:
                with suppress(NotFoundError, ConflictError):  # it has gone meanwhile
                    await self._delete("pod", pod)

    async def uncordon(self, kind: str, name: str) -> str:
        """Remove the label again.  A node that kubectl has cordoned stays cordoned."""
        if kind != "node":
            raise CommandError(Exit.USAGE, f"edl uncordon takes node/NAME, not a {kind}")
        await self._set_drain_label(await self.reader.find(kind, name), None)
        return f"node/{name} is open"

    async def request_comparison(self, name: str, request: str) -> None:
        """Ask for a comparison of a group's replicas, under this name.  A job that is over is left as it is."""
        found = await self.reader.find("tj", name)
        if "group" not in found["spec"]:
            raise CommandError(Exit.USAGE, f"tj/{name} is no group (spec.group): its trainers hold no replicas")
        if any(condition_of(found, ending).get("status") == "True" for ending in ("Completed", "Failed")):
            return
        await self.reader.api.patch(
            TRAINING_JOBS,
            text(found, "metadata", "name"),
            {"metadata": {"annotations": {COMPARE: request}}},
            namespace=text(found, "metadata", "namespace"),
            only=Preconditions(uid=text(found, "metadata", "uid")),
        )

    async def set_suspended(self, kind: str, name: str, *, is_suspended: bool) -> str:
        """Set `spec.runPolicy.suspend`."""
        if kind != "tj":
            command = "suspend" if is_suspended else "resume"
            raise CommandError(Exit.USAGE, f"edl {command} takes tj/NAME, not a {kind}")
        found = await self.reader.find(kind, name)
        _check_unfinished(found)
        await self.reader.api.patch(
            TRAINING_JOBS,
            text(found, "metadata", "name"),
            {"spec": {"runPolicy": {"suspend": is_suspended}}},
            namespace=text(found, "metadata", "namespace"),
            only=Preconditions(uid=text(found, "metadata", "uid")),
        )
        job = f"tj/{text(found, 'metadata', 'name')}"
        if not is_suspended:
            return f"{job} resumed"
        return (
            f"{job} is being suspended; edl wait --for=condition=Suspended {job} returns once its trainers have ended"
        )

    async def keep_pod(self, name: str, for_s: float) -> str:
        """Ask for the pod to be left alone for so long, whatever its GPUs do; 0: no longer."""
        found = await self.reader.find("pod", name)
        if for_s:
            _check_can_be_kept(found)
        identity = {field: text(found, "metadata", field) for field in ("namespace", "name", "uid")}
        until = await write_keep(self.reader.api, **identity, for_s=for_s, server_now_s=self.server_now_s())
        return f"pod/{text(found, 'metadata', 'name')} is {f'kept until {until}' if until else 'kept no longer'}"

    async def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        """Delete an object and everything that it owns."""
        if kind == "node":
            raise CommandError(
                Exit.USAGE, "EDL does not delete nodes; edl drain node/NAME removes EDL's pods from a node"
            )
        found = await self.reader.find(kind, name)
        if not is_dry:
            await self._delete(kind, found)
        done = "would be deleted (dry run)" if is_dry else "is being deleted"
        return f"{kind}/{text(found, 'metadata', 'name')} {done}"

    async def _delete(self, kind: str, found: Raw) -> None:
        await self.reader.api.delete(
            KINDS[kind],
            text(found, "metadata", "name"),
            namespace=text(found, "metadata", "namespace"),
            only=Preconditions(uid=text(found, "metadata", "uid")),
            propagation=None if KINDS[kind] is PODS else Propagation.BACKGROUND,
        )

    async def _set_drain_label(self, node: Raw, value: str | None) -> None:
        change = {"metadata": {"labels": {DRAIN: value}}}
        only = Preconditions(uid=text(node, "metadata", "uid"))
        await self.reader.api.patch(NODES, text(node, "metadata", "name"), change, only=only)


def _check_can_be_kept(pod: Raw) -> None:
    """Refuse a pod of which EDL reads no `keep-until`, so that nobody relies on it."""
    name = text(pod, "metadata", "name")
    if text(pod, "metadata", "labels", ROLE):
        job = text(pod, "metadata", "labels", JOB)
        hint = f"to keep its trainers, edl scale tj/{job} --trainers N"
        raise CommandError(Exit.REFUSED, f"pod/{name} belongs to tj/{job}, whose size EDL decides; {hint}")
    if not pod_request(pod["spec"], part(pod, "status")).gpu_count:
        raise CommandError(
            Exit.REFUSED, f"pod/{name} requests no GPUs, so there are none to keep: name a pod that does"
        )


def _check_size(job: Raw, size: SizeRequest) -> None:
    """Refuse a size that is not allowed; the API server checks only the bounds."""
    from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job, to_planner_job  # noqa: PLC0415 - pydantic

    try:
        planned = to_planner_job(parse_job(job), priority=0)
    except InvalidSpecError:
        return  # the operator reports that in the status
    problem = find_size_problem(text(job, "metadata", "name"), planned, size.field, size.count)
    if problem:
        raise CommandError(Exit.REFUSED, problem)


def _check_unfinished(job: Raw) -> None:
    for ending in ("Completed", "Failed"):
        if condition_of(job, ending).get("status") == "True":
            name = text(job, "metadata", "name")
            again = f"to train on, edl delete tj/{name} and start it again with the same checkpoint folder"
            raise CommandError(Exit.REFUSED, f"tj/{name} has ended ({ending}), and its spec cannot be changed; {again}")
