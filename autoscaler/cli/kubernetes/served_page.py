"""The page of a cluster on this machine, with the rights of the user whose kubeconfig it is (ADR 0285)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.api_errors import to_command_error
from autoscaler.cli.kubernetes.kept_snapshot import KeptSnapshot
from autoscaler.cli.kubernetes.kubeconfig import ClusterTarget, find_cluster
from autoscaler.cluster_page.cluster_access import IN_CLUSTER_VIEW
from autoscaler.cluster_page.cluster_source import ClusterSource
from autoscaler.cluster_page.pod_keeping import OwnKeeper
from autoscaler.cluster_page.reviews import own_access_review, parse_access_review
from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.clock_skew import ServerClock
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import OWN_ACCESS_REVIEWS
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.errors import ClusterError
from autoscaler.page.page_server import serve_locally
from master.api.host.log_lines import escape_controls


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNamespaces:
    """Which namespaces the options name: one, all, or neither."""

    named: str | None
    is_all: bool


def serve_page(kubeconfig: str | None, context: str | None, shown: ShownNamespaces, *, port: int) -> None:
    """Serve the page of the selected cluster until Ctrl-C.  Raises CommandError."""
    target = find_cluster(kubeconfig, context, shown.named)
    try:
        asyncio.run(_serve(target, shown, port))
    except ClusterError as error:
        raise to_command_error(error, target.title) from None
    except OSError as error:
        raise CommandError(Exit.FAILED, f"port {port} cannot be used: {error}") from None


async def _serve(target: ClusterTarget, shown: ShownNamespaces, port: int) -> None:
    async with own_connection(target) as (api, keeper):
        namespaces = await choose_namespaces(api, shown, target.namespace)
        source = ClusterSource(api, title=target.title, read_snapshot=KeptSnapshot(), namespaces=namespaces)
        watching = asyncio.create_task(source.run())
        try:
            async with serve_locally(source, port=port, keeper=keeper) as address:
                where = f"namespace {', '.join(namespaces)}" if namespaces else "all namespaces"
                print(escape_controls(f"{target.title}, {where}: {address}"), flush=True)
                print("Ctrl-C ends it.", flush=True)
                await watching
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


@asynccontextmanager
async def own_connection(target: ClusterTarget) -> AsyncIterator[tuple[Api, OwnKeeper]]:
    """A client with the user's credentials, and the keeper of pods, by the server's clock.  Raises ClusterError."""
    policy = ConnectionPolicy(attempts=2, budget_s=5.0)
    clock = ServerClock(time.time, steady_clock=time.time)  # the monotonic one stands still while a laptop sleeps
    api = await connect(
        target.kubeconfig, context=target.context, policy=policy, trimmers=TRIMMERS, report_skew=clock.set_ahead
    )
    try:
        yield api, OwnKeeper(api, server_now_s=clock.now_s)
    finally:
        await api.close()


async def choose_namespaces(api: Api, shown: ShownNamespaces, own: str) -> tuple[str, ...]:
    """Return the namespaces to show: those of the options, else all if the user may read all, else their own.

    Raises ClusterError.
    """
    if shown.is_all:
        return ()
    if shown.named is not None:
        return (own,)
    for right in IN_CLUSTER_VIEW:
        if not parse_access_review(await api.create(OWN_ACCESS_REVIEWS, own_access_review(right))):
            return (own,)
    return ()
