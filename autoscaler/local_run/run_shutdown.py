"""Shutdown of a run: its pods end in order and within their grace periods, web and trainers first, masters last (M7).

Jobs leave as those that a user suspends; pods that the operator does not delete are deleted here.  Not here: etcd and
the processes that outlive that (`local_run`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import Raw, controller_of, integer, text
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE
from autoscaler.domain import Role
from autoscaler.jobs.lifecycle import STOP_ORDER

_MARGIN_S: Final = 8.0
_POLL_S: Final = 0.02
_OVERDUE_S: Final = 1.0


async def stop_pods(server: MemoryServer, api: MemoryApi) -> None:
    """Return once no pod stands, or once the longest grace of each role is over."""
    for one in server.all(DEPLOYMENTS):
        if not controller_of(one):  # the masters' are the operator's to delete
            await api.delete(DEPLOYMENTS, _name(one), namespace=_namespace(one))
    for one in server.all(TRAINING_JOBS):
        suspended = {"spec": {"runPolicy": {"suspend": True}}}
        await api.patch(TRAINING_JOBS, _name(one), suspended, namespace=_namespace(one))
    deadline_s = time.monotonic() + _longest_stop_s(server.all(PODS))
    due_s: dict[str, float] = {}
    while (pods := list(server.all(PODS))) and time.monotonic() < deadline_s:
        await _delete_overdue(pods, server, api, due_s)
        await asyncio.sleep(_POLL_S)


async def _delete_overdue(pods: Iterable[Raw], server: MemoryServer, api: MemoryApi, due_s: dict[str, float]) -> None:
    """Delete the pods that the operator has left alone for a second after their role's turn came.

    So it does while a job's trainers save at its end, while it cannot read the job, or pauses after a fault.
    `due_s`: when, by the pod's UID.
    """
    jobs: dict[tuple[str, str], list[Raw]] = {}
    for pod in pods:
        if (name := text(pod, "metadata", "labels", JOB)) and _role(pod) in STOP_ORDER:
            jobs.setdefault((_namespace(pod), name), []).append(pod)
    for (namespace, job), own in jobs.items():
        role = next(role for role in STOP_ORDER if any(_role(pod) == role for pod in own))
        staying = [pod for pod in own if _role(pod) == role and not text(pod, "metadata", "deletionTimestamp")]
        now_s = time.monotonic()
        overdue = [pod for pod in staying if now_s >= due_s.setdefault(pod["metadata"]["uid"], now_s + _OVERDUE_S)]
        kind, targets = (DEPLOYMENTS, _masters_of(server, namespace, job)) if role is Role.MASTER else (PODS, overdue)
        for target in targets if overdue else ():
            with suppress(NotFoundError):
                await api.delete(kind, _name(target), namespace=namespace)


def _masters_of(server: MemoryServer, namespace: str, job: str) -> list[Raw]:
    deployments = [one for one in server.all(DEPLOYMENTS) if _namespace(one) == namespace]
    return [one for one in deployments if text(one, "metadata", "labels", JOB) == job]


def _longest_stop_s(pods: Iterable[Raw]) -> float:
    """The longest grace of each role, for roles leave one after the other."""
    grace_s: dict[str, int] = {}
    for pod in pods:
        grace_s[_role(pod)] = max(grace_s.get(_role(pod), 0), integer(pod, "spec", "terminationGracePeriodSeconds"))
    return sum(grace_s.values()) + _MARGIN_S


def _name(raw: Raw) -> str:
    return text(raw, "metadata", "name")


def _namespace(raw: Raw) -> str:
    return text(raw, "metadata", "namespace")


def _role(pod: Raw) -> str:
    return text(pod, "metadata", "labels", ROLE)
