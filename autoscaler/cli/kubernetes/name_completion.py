"""Names of a cluster's objects for shell completion: within one second, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from autoscaler.cli.exit_codes import CommandError
from autoscaler.cli.kubernetes.kubeconfig import ClusterTarget, find_cluster
from autoscaler.cli.kubernetes.object_reader import KINDS
from autoscaler.clusters.kubernetes.api.api_port import Api, Scope
from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, Kind
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.errors import ClusterError

COMPLETION_TIMEOUT_S: Final = 1.0


def list_names(kubeconfig: str | None, context: str | None, namespace: str | None, types: Iterable[str]) -> list[str]:
    """TYPE/NAME of every object of these types in the namespace."""
    return _list_names(kubeconfig, context, namespace, _kinds_of(types))


def list_namespaces(kubeconfig: str | None, context: str | None) -> list[str]:
    """The names of all namespaces."""
    return _list_names(kubeconfig, context, None, {"": NAMESPACES})


def list_names_at(api: Api, namespace: str, types: Iterable[str]) -> list[str]:
    """TYPE/NAME of every object of these types in the namespace of this API server."""
    return _run(_find(api, namespace, _kinds_of(types)))


def _list_names(
    kubeconfig: str | None, context: str | None, namespace: str | None, kinds: dict[str, Kind]
) -> list[str]:
    try:
        target = find_cluster(kubeconfig, context, namespace)
    except CommandError:
        return []
    return _run(_find_on_cluster(target, kinds))


def _run(call: Coroutine[Any, Any, list[str]]) -> list[str]:
    async def bounded() -> list[str]:
        async with asyncio.timeout(COMPLETION_TIMEOUT_S):
            return await call

    try:
        return asyncio.run(bounded())
    except (ClusterError, TimeoutError):
        return []


async def _find_on_cluster(target: ClusterTarget, kinds: dict[str, Kind]) -> list[str]:
    from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy  # noqa: PLC0415 - not for runs
    from autoscaler.clusters.kubernetes.api.http_client import connect  # noqa: PLC0415 - with it

    api = await connect(target.kubeconfig, context=target.context, policy=ConnectionPolicy(attempts=1))
    try:
        return await _find(api, target.namespace, kinds)
    finally:
        await api.close()


async def _find(api: Api, namespace: str, kinds: dict[str, Kind]) -> list[str]:
    answers = await asyncio.gather(*(api.list(kind, _scope(kind, namespace)) for kind in kinds.values()))
    return [
        f"{prefix}{text(raw, 'metadata', 'name')}"
        for prefix, listing in zip(kinds, answers, strict=True)
        for raw in listing.items
    ]


def _kinds_of(types: Iterable[str]) -> dict[str, Kind]:
    return {f"{one}/": KINDS[one] for one in types}


def _scope(kind: Kind, namespace: str) -> Scope:
    return Scope(namespace=namespace) if kind.is_namespaced else Scope()
