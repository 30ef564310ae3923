"""kopf handlers: queue an edited TrainingJob at once, and log the edit field by field.

An edit may come here before the term's own watches show it.  Correctness does not depend on the handlers: the watches
of the term show every change.  kopf writes nothing here, so that there is nothing to fence: its progress and what it
saw last stay in memory, it posts no events, and no handler asks for a finalizer (no timer, no daemon, deletions are
optional).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import kopf

from autoscaler.clusters.kubernetes.objects.labels import API_GROUP
from autoscaler.clusters.kubernetes.objects.names import job_key
from autoscaler.domain import JobName
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.work_queue import WorkQueue

RESOURCE: Final = (API_GROUP, "v1alpha1", "trainingjobs")
AGAIN_S: Final = 30.0

log = logging.getLogger(__name__)


class MemoryProgress(kopf.ProgressStorage):
    """Progress storage of kopf, without content: handlers here have one step."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence


class MemoryDiffBase(kopf.DiffBaseStorage):
    """Diff storage of kopf in memory, by UID; templates are left out, since they may be huge."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, Any] = {}

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:  # noqa: ARG002 - kopf's signature
        return {"spec": {name: _without_template(field) for name, field in (body.get("spec") or {}).items()}}

    def fetch(self, *, body: Any) -> Any:
        return self._seen.get(body.metadata.uid)

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:  # noqa: ARG002 - nothing is written
        self._seen[body.metadata.uid] = essence

    def forget(self, uid: str) -> None:
        """Drop a deleted object."""
        self._seen.pop(uid, None)


def _without_template(field: Any) -> Any:
    if not isinstance(field, Mapping):
        return field
    return {name: value for name, value in field.items() if name != "template"}


def make_registry(wakeups: WorkQueue, seen: MemoryDiffBase, login: Callable[..., Any]) -> kopf.OperatorRegistry:
    """Return the handlers of one term; `wakeups` gets each job that has changed."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)

    @kopf.on.create(*RESOURCE, registry=registry)
    @kopf.on.resume(*RESOURCE, registry=registry)
    @kopf.on.delete(*RESOURCE, registry=registry, optional=True)
    async def wake(*, namespace: str | None, name: str, **_: Any) -> None:
        wakeups.add(job_key(namespace or "", name))

    @kopf.on.update(*RESOURCE, registry=registry, field="spec")
    async def edit(*, namespace: str | None, name: str, diff: Any, **_: Any) -> None:
        job = job_key(namespace or "", name)
        wakeups.add(job)
        for _, path, before, after in diff:
            if (event := edit_of(tuple(path), before, after)) is not None:  # logged: the event is the decision's
                log.info("tj/%s: %s: %s", job, event.reason, event.message)

    @kopf.on.event(*RESOURCE, registry=registry)
    async def follow(*, event: Any, meta: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            seen.forget(meta.uid)

    return registry


def edit_of(path: tuple[str, ...], before: Any, after: Any) -> JobEvent | None:
    """Return the log line for the edit of one field, or None; the job's lifecycle reports suspensions."""
    match path:
        case ("trainer", "replicas"):
            if after:
                message = f"spec.trainer.replicas pins the job to {after} trainers"
                return JobEvent(reason="Pinned", message=f"{message}, in place of {before}" if before else message)
            return JobEvent(reason="Unpinned", message="EDL decides the number of trainers again")
        case ("parameterServer", "replicas"):
            if after:
                message = f"spec.parameterServer.replicas pins the job to {after} servers"
                return JobEvent(reason="Pinned", message=f"{message}, in place of {before}" if before else message)
            return JobEvent(reason="Unpinned", message="EDL decides the number of servers again")
        case (
            ("trainer", "minReplicas" | "maxReplicas" | "step")
            | ("parameterServer", "minReplicas" | "trainersPerServer")
            | ("weight",)
            | ("mode",)
        ):
            return JobEvent(reason="Edited", message=f"spec.{'.'.join(path)}: {before} -> {after}")
        case _:
            return None


def make_settings(seen: MemoryDiffBase) -> kopf.OperatorSettings:
    """Settings under which kopf writes nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # the one kind is known
    settings.persistence.progress_storage = MemoryProgress()
    settings.persistence.diffbase_storage = seen
    settings.watching.server_timeout = 60
    settings.watching.client_timeout = 70
    return settings


def make_login(kubeconfig: Path | None) -> Callable[..., kopf.ConnectionInfo | None]:
    """Make kopf's way to the API server: the service account, or what KUBECONFIG names (set by `main`)."""

    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is None:
            return kopf.login_with_service_account(**kwargs)
        return kopf.login_with_kubeconfig(**kwargs)

    return login


class _ThreadsafeQueue(WorkQueue):
    """Takes jobs that are added in kopf's thread to the event loop of the queue's readers."""

    def __init__(self, inner: WorkQueue, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner = inner
        self._loop = loop

    def add(self, job: JobName) -> None:
        """See `WorkQueue.add`."""
        with contextlib.suppress(RuntimeError):  # that loop has ended
            self._loop.call_soon_threadsafe(self._inner.add, job)


async def listen_to_edits(wakeups: WorkQueue, *, kubeconfig: Path | None, namespaces: Collection[str]) -> None:
    """Add each edited job to `wakeups` until cancelled; without kopf edits come a moment later, by the watches."""
    while True:
        try:
            await run_kopf(wakeups, kubeconfig=kubeconfig, namespaces=namespaces)
        except Exception:
            log.exception("kopf has ended; edits are still seen by the watches; kopf restarts in %g s", AGAIN_S)
        await asyncio.sleep(AGAIN_S)


async def run_kopf(wakeups: WorkQueue, *, kubeconfig: Path | None, namespaces: Collection[str]) -> None:
    """Run kopf until cancelled.

    In a thread and a loop of its own: when kopf ends it cancels every task of its loop, whoever started it, and in the
    main thread it would take the process's signals.
    """
    stop = threading.Event()
    queue = _ThreadsafeQueue(wakeups, asyncio.get_running_loop())

    def serve() -> None:
        seen = MemoryDiffBase()
        asyncio.run(
            kopf.operator(
                registry=make_registry(queue, seen, make_login(kubeconfig)),
                settings=make_settings(seen),
                standalone=True,
                clusterwide=not namespaces,
                namespaces=list(namespaces),
                stop_flag=stop,
            )
        )

    served = asyncio.get_running_loop().run_in_executor(None, serve)
    try:
        await asyncio.shield(served)
    finally:
        stop.set()  # kopf has no work to finish, so nothing waits for it
