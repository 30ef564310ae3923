"""Control plane of one machine: the API server in memory, with nodes, classes and the controllers behind it.

    async with ControlPlane(nodes, ...) as plane:
        api = MemoryApi(plane.server)
        ...

Inside the context every change of an object is answered at once: Deployments get their pods, pending pods a node, bound
pods a process, and what has lost its owner is collected.  The controllers write to the objects directly, in the event
loop of whoever reads and writes through the API, so none of their writes can meet a conflict.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, PRIORITY_CLASSES, SECRETS, Kind
from autoscaler.clusters.kubernetes.memory_api import MemoryServer, collect
from autoscaler.clusters.kubernetes.memory_api.watch_history import ObjectChange
from autoscaler.clusters.kubernetes.parsing.priority_classes import LEVEL_SURPLUS
from autoscaler.clusters.local.control_plane.deployment_controller import CONTROLLER_MANAGER, reconcile_deployments
from autoscaler.clusters.local.control_plane.kubelet import Kubelet
from autoscaler.clusters.local.control_plane.pod_commands import PodCommands
from autoscaler.clusters.local.control_plane.pod_scheduler import schedule_pods
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.domain import Node, Resources
from autoscaler.fault_isolation import GuardedTask, IsolatedTask, JobErrors, raw_object_key
from autoscaler.manifests.api_types import CORE_CLASS
from autoscaler.quantities import format_cpu, format_memory

EDL_CLASSES: Final = (CORE_CLASS, LEVEL_SURPLUS)
"""Both have the value of pods without a class: the planner, not the scheduler, chooses who leaves."""

REMEMBERED_CHANGES: Final = 1_000
"""For watches; one that more changes overtake gets a 410 and lists again, as on a cluster."""

RETRY_EVERY_S: Final = 1.0
"""After a fault with one object: it is brought to what it should be without waiting for its next change (A11)."""

REMEMBERED_EVENTS: Final = 1_000
"""An hour of a busy run has fewer; what is older stands in its journal."""


class ControlPlane:
    """An async context; at its end no process of a pod is left.

    `nodes`: each with its GPU numbers; `cuda_ids`: CUDA's names of them, where known.  `wall_s`: Unix time.
    `on_crash` hears of what no pod is to blame for.
    `on_changes` is called with all changes in order, each once, after the controllers have reacted to them.
    """

    def __init__(
        self,
        nodes: Mapping[Node, Sequence[int]],
        folder: RunFolder,
        *,
        working_dir: Path,
        environment: Mapping[str, str],
        clock: Callable[[], float],
        wall_s: Callable[[], float],
        errors: JobErrors,
        on_crash: Callable[[BaseException], None],
        on_changes: Callable[[Sequence[ObjectChange]], None] = lambda _: None,
        serves_metrics: bool = False,
        cuda_ids: Mapping[int, str] | None = None,
    ) -> None:
        self.server: Final = MemoryServer(now=wall_s, window=REMEMBERED_CHANGES, new_uid=lambda: str(uuid4()))
        self._changes = self.server.history.subscribe()
        for node in nodes:
            create_node(self.server, node)
        for name in EDL_CLASSES:
            body = {"metadata": {"name": name}, "value": 0, "preemptionPolicy": "Never"}
            self.server.create(PRIORITY_CLASSES, body, CONTROLLER_MANAGER)
        commands = PodCommands(
            folder=folder,
            working_dir=working_dir,
            environment=environment,
            secret_of=partial(self.server.get, SECRETS),
            cuda_ids=cuda_ids or {},
        )
        self.kubelet: Final = Kubelet(
            self.server,
            commands,
            devices={node.name: devices for node, devices in nodes.items()},
            clock=clock,
            errors=errors,
            on_crash=on_crash,
            serves_metrics=serves_metrics,
        )
        self.socket_of: Final = commands.socket_of
        self._events: deque[Raw] = deque()  # the oldest first
        self._errors = errors
        self._on_crash = on_crash
        self._on_changes = on_changes
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.kubelet.processes)
        following = asyncio.create_task(self._follow(), name="control plane")
        following.add_done_callback(self._report_crash)
        self._stack.push_async_callback(self._end, following)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _follow(self) -> None:
        """React to every change until cancelled; what the reactions change is reacted to as well."""
        with self.server.history.waiting() as woken:
            while True:
                woken.clear()
                while changes := tuple(self._changes):
                    self._changes.clear()
                    self._react(changes)
                await self._wait(woken)

    async def _wait(self, woken: asyncio.Event) -> None:
        """Wait for the next change; what has failed is tried again without one."""
        while not woken.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_EVERY_S):
                    await woken.wait()
            if self._errors.has_failures:
                self._retry()

    def _retry(self) -> None:
        """Each step goes over what a fault has kept from it; a pod without faults is not shown to the kubelet again."""
        self._collect()
        reconcile_deployments(self.server, self._errors)
        schedule_pods(self.server, self._errors)
        for pod in self.server.all(PODS):
            if self._errors.problem(raw_object_key("pod", pod)):
                self.kubelet.sync(pod)

    def _collect(self) -> None:
        def isolate(kind: Kind, obj: Raw) -> IsolatedTask:
            return self._errors.isolate(raw_object_key(kind.kind.lower(), obj), GuardedTask.DELETE, passing=())

        collect(self.server, isolate)

    def _react(self, changes: Sequence[ObjectChange]) -> None:
        if any(is_departure(change) for change in changes if change.kind != EVENTS):  # these own nothing
            self._collect()
        if any(change.kind in {DEPLOYMENTS, PODS} for change in changes):
            reconcile_deployments(self.server, self._errors)
        if any(change.kind in {NODES, PODS} for change in changes):
            schedule_pods(self.server, self._errors)
        self._forget_old_events(change for change in changes if change.kind == EVENTS and change.before is None)
        for change in changes:
            if change.kind != PODS:
                continue
            if change.after is None and change.before is not None:
                self.kubelet.forget(change.before["metadata"]["uid"])
            elif change.after is not None:
                self.kubelet.sync(change.after)
        self._on_changes(changes)
        self._forget_failures((change.kind, change.before) for change in changes if change.after is None)

    def _forget_failures(self, departures: Iterable[tuple[Kind, Raw | None]]) -> None:
        """Failures go with their object, unless another one bears its name by now."""
        for kind, gone in departures:
            if gone is None:
                continue
            try:
                self.server.get(kind, gone["metadata"].get("namespace"), gone["metadata"]["name"])
            except NotFoundError:
                for word in (kind.plural, kind.kind.lower()):
                    self._errors.forget(raw_object_key(word, gone))

    def _forget_old_events(self, created: Iterable[ObjectChange]) -> None:
        """A real API server keeps an event for an hour; here the newest are kept."""
        self._events.extend(change.after for change in created if change.after is not None)
        while len(self._events) > REMEMBERED_EVENTS:
            metadata = self._events.popleft()["metadata"]
            with suppress(NotFoundError):
                self.server.delete(EVENTS, metadata["namespace"], metadata["name"])

    async def _end(self, following: asyncio.Task[None]) -> None:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await self.kubelet.close()

    def _report_crash(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def create_node(server: MemoryServer, node: Node) -> None:
    """The node stands, ready, with its capacity."""
    server.create(NODES, {"metadata": {"name": node.name, "labels": dict(node.labels)}, "spec": {}}, CONTROLLER_MANAGER)
    standing = server.get(NODES, None, node.name)
    status = {
        "allocatable": allocatable_of(node.allocatable),
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    server.rewrite(NODES, standing, {**standing, "status": status})


def allocatable_of(capacity: Resources) -> dict[str, str]:
    """Amounts as a node's status has them."""
    shown = {"cpu": format_cpu(capacity.cpu_milli), "memory": format_memory(capacity.memory_bytes)}
    if capacity.gpu_count:
        shown["nvidia.com/gpu"] = str(capacity.gpu_count)
    return shown | {name: str(amount) for name, amount in capacity.extended}


def is_departure(change: ObjectChange) -> bool:
    """True if the object is gone or was told to go: what it owns may have to follow."""
    return change.after is None or "deletionTimestamp" in change.after["metadata"]
