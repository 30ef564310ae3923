"""What commands change on a cluster, each by one write to the very object that was looked at; returns what to tell."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.cli.exits import CommandError, Exit
from autoscaler.cli.kube.asking import KINDS, Asking
from autoscaler.cli.places import Seat, Size, told_scaled
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.api.port import ANY, Preconditions, Propagation, Raw, Subresource
from autoscaler.clusters.kubernetes.building.labels import DRAIN
from autoscaler.clusters.kubernetes.reading.raw import condition_of, text
from autoscaler.clusters.sizes import find_problem
from autoscaler.errors import InvalidSpecError


@dataclass(frozen=True, slots=True)
class Changes:
    """Raises ClusterError and CommandError; then nothing has changed."""

    asking: Asking

    async def scale(self, kind: str, name: str, size: Size, *, is_dry: bool) -> str:
        """By /scale, as an autoscaler would; a job's servers by `spec.parameterServer.replicas`."""
        options = {"deployment": ("replicas",), "tj": ("trainers", "servers")}.get(kind)
        if options is None:
            raise CommandError(Exit.USAGE, f"a {kind} has no size; scale a deployment or a tj")
        if size.of not in options:
            told = " or ".join(f"--{option} N" for option in options)
            raise CommandError(Exit.USAGE, f"the size of a {kind} is set with {told}")
        found = await self.asking.find(kind, name)
        if kind == "tj":
            _check_unfinished(found)
            _check_size(found, size)
        if not is_dry:
            await self._write_size(kind, found, size)
        return told_scaled(f"{kind}/{text(found, 'metadata', 'name')}", size, is_dry=is_dry)

    async def _write_size(self, kind: str, found: Raw, size: Size) -> None:
        is_servers = size.of == "servers"
        await self.asking.api.patch(
            TRAINING_JOBS if kind == "tj" else DEPLOYMENTS,
            text(found, "metadata", "name"),
            {"spec": {"parameterServer": {"replicas": size.count}} if is_servers else {"replicas": size.count}},
            namespace=text(found, "metadata", "namespace"),
            subresource=None if is_servers else Subresource.SCALE,
            only=Preconditions(uid=text(found, "metadata", "uid")) if is_servers else ANY,
        )

    async def drain(self, kind: str, name: str, seat: Seat, *, is_dry: bool) -> str:
        """A pod by deletion with its own grace; a node by the label that makes EDL's pods leave it."""
        if kind == "deployment":
            raise CommandError(Exit.USAGE, "a deployment is scaled, not drained; name a node, a pod or a tj")
        if kind == "node":
            found = await self.asking.find(kind, name)
            if not is_dry:
                await self._label(found, "true")
            told = f"node/{name}"
            return f"{told} would be drained (dry run)" if is_dry else f"{told} is draining: EDL's pods leave it"
        pod = await self.asking.pod_of(kind, name, seat)
        told = f"pod/{text(pod, 'metadata', 'name')}"
        if is_dry:
            return f"{told} would be drained (dry run)"
        await self._delete("pod", pod)
        return f"{told} is draining"

    async def uncordon(self, kind: str, name: str) -> str:
        """Take the label away again.  A node that kubectl has cordoned stays so."""
        if kind != "node":
            raise CommandError(Exit.USAGE, f"only nodes are opened again, as node/NAME; a {kind} is not")
        await self._label(await self.asking.find(kind, name), None)
        return f"node/{name} is open"

    async def suspend(self, kind: str, name: str, *, is_on: bool) -> str:
        """By `spec.runPolicy.suspend`."""
        if kind != "tj":
            raise CommandError(Exit.USAGE, f"only jobs are suspended and resumed, as tj/NAME; a {kind} is not")
        found = await self.asking.find(kind, name)
        _check_unfinished(found)
        await self.asking.api.patch(
            TRAINING_JOBS,
            text(found, "metadata", "name"),
            {"spec": {"runPolicy": {"suspend": is_on}}},
            namespace=text(found, "metadata", "namespace"),
            only=Preconditions(uid=text(found, "metadata", "uid")),
        )
        return f"tj/{text(found, 'metadata', 'name')} {'suspended' if is_on else 'resumed'}"

    async def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        """With everything that it owns."""
        if kind == "node":
            raise CommandError(Exit.USAGE, "nodes are not EDL's to delete; edl drain node/NAME sends EDL's pods away")
        found = await self.asking.find(kind, name)
        if not is_dry:
            await self._delete(kind, found)
        told = f"{kind}/{text(found, 'metadata', 'name')}"
        return f"{told} would be deleted (dry run)" if is_dry else f"{told} is being deleted"

    async def _delete(self, kind: str, found: Raw) -> None:
        await self.asking.api.delete(
            KINDS[kind],
            text(found, "metadata", "name"),
            namespace=text(found, "metadata", "namespace"),
            only=Preconditions(uid=text(found, "metadata", "uid")),
            propagation=None if KINDS[kind] is PODS else Propagation.BACKGROUND,
        )

    async def _label(self, node: Raw, value: str | None) -> None:
        change = {"metadata": {"labels": {DRAIN: value}}}
        only = Preconditions(uid=text(node, "metadata", "uid"))
        await self.asking.api.patch(NODES, text(node, "metadata", "name"), change, only=only)


def _check_size(job: Raw, size: Size) -> None:
    """The API server checks the bounds; which sizes lie between is checked here, before anything is written."""
    from autoscaler.clusters.kubernetes.reading.jobs import planned_job, read_job  # noqa: PLC0415 - pydantic

    try:
        planned = planned_job(read_job(job), priority=0)
    except InvalidSpecError:
        return  # the operator says so in its status
    problem = find_problem(text(job, "metadata", "name"), planned, size.of, size.count)
    if problem:
        raise CommandError(Exit.REFUSED, problem)


def _check_unfinished(job: Raw) -> None:
    for ending in ("Completed", "Failed"):
        if condition_of(job, ending).get("status") == "True":
            told = f"tj/{text(job, 'metadata', 'name')} is {ending}; nothing of it can be changed any more"
            raise CommandError(Exit.REFUSED, told)
