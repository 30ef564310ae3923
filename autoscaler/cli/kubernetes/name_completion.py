"""Names of a cluster's objects for shell completion: within one second, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from autoscaler.cli.exit_codes import CommandError
from autoscaler.cli.kubernetes.kubeconfig import ClusterTarget, find_cluster
from autoscaler.cli.kubernetes.object_reader import KINDS
from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, Kind
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.errors import ClusterError

COMPLETION_TIMEOUT_S: Final = 1.0


def list_names(kubeconfig: str | None, context: str | None, namespace: str | None, types: Iterable[str]) -> list[str]:
    """TYPE/NAME of every object of these types in the namespace."""
    kinds = {f"{one}/": KINDS[one] for one in types}
    return _list_names(kubeconfig, context, namespace, kinds)


def list_namespaces(kubeconfig: str | None, context: str | None) -> list[str]:
    """The names of all namespaces."""
    return _list_names(kubeconfig, context, None, {"": NAMESPACES})


def _list_names(
    kubeconfig: str | None, context: str | None, namespace: str | None, kinds: dict[str, Kind]
) -> list[str]:
    try:
        target = find_cluster(kubeconfig, context, namespace)
        return asyncio.run(_list(target, kinds))
    except (CommandError, ClusterError, TimeoutError):
        return []


async def _list(target: ClusterTarget, kinds: dict[str, Kind]) -> list[str]:
    async with asyncio.timeout(COMPLETION_TIMEOUT_S):
        api = await connect(target.kubeconfig, context=target.context, policy=ConnectionPolicy(attempts=1))
        try:
            answers = await asyncio.gather(*(api.list(kind, _scope(kind, target)) for kind in kinds.values()))
        finally:
            await api.close()
    found: Sequence[str] = [
        f"{prefix}{text(raw, 'metadata', 'name')}"
        for prefix, listing in zip(kinds, answers, strict=True)
        for raw in listing.items
    ]
    return list(found)


def _scope(kind: Kind, target: ClusterTarget) -> Scope:
    return Scope(namespace=target.namespace) if kind.is_namespaced else Scope()
