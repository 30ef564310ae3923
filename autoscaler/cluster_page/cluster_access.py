"""`Access` of the page by the API server: bearer tokens, and what their users may read there (ADR 0286).

A namespace is shown to those who have in it what the cluster's role `view` gives: all that the page shows of it is
among that.  Of other namespaces nothing is shown, not even a number.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiohttp import web

from autoscaler.cluster_page.reviews import ReadRight, TokenUser, bearer_token
from autoscaler.cluster_page.viewer_access import AccessUnknownError, ViewerAccess
from autoscaler.clusters.kubernetes.api.kinds import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODE_GPUS,
    NODES,
    POD_AUTOSCALERS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.page.access.viewers import Viewer
from autoscaler.views.documents import Rights

IN_NAMESPACE: Final = (
    ReadRight(kind=TRAINING_JOBS),
    ReadRight(kind=PODS),
    ReadRight(kind=PODS, verb="get", subresource="log"),
    ReadRight(kind=DEPLOYMENTS),
    ReadRight(kind=Kind(plural="events", kind="Event")),  # the core group's, which the role `view` names
)
"""Rights that the page needs in a namespace, the rarest first."""

IN_CLUSTER_VIEW: Final = (*IN_NAMESPACE[:-1], ReadRight(kind=NODES))
"""Rights, each in the whole cluster, of those to whom all of it is shown."""

TO_PLAN: Final = tuple(
    ReadRight(kind=kind)
    for kind in (
        NODE_GPUS,
        NAMESPACES,
        STATEFUL_SETS,
        POD_AUTOSCALERS,
        DAEMON_SETS,
        PRIORITY_CLASSES,
        RESOURCE_QUOTAS,
        LIMIT_RANGES,
    )
)
"""Further rights, each in the whole cluster, of those who may ask the planner: with them a plan shows nothing new."""

_HINT: Final = (
    "This page needs a token of the cluster's, in the header Authorization: Bearer TOKEN.\n"
    "kubectl edl page opens it with your own credentials.\n"
)
_UNKNOWN: Final = "The API server does not say now what you may see; try again in a moment.\n"


class ClusterAccess:
    """Access of viewers whose tokens the API server knows.

    `policy`: namespace and name of the ConfigMap by which this page plans; None: it does not, and nobody may ask it to.
    """

    def __init__(self, viewers: ViewerAccess, *, policy: tuple[str, str] | None = None) -> None:
        self._viewers = viewers
        self._to_plan: tuple[ReadRight, ...] = ()
        if policy is not None:
            namespace, name = policy
            self._to_plan = (*TO_PLAN, ReadRight(kind=CONFIG_MAPS, namespace=namespace, verb="get", name=name))

    async def identify(self, request: web.Request) -> Viewer:
        """See `Access`.  Raises 401 without a valid token, 503 while the API server does not answer."""
        token = bearer_token(request.headers.get("Authorization", ""))
        return Viewer(name=(await self._known(token)).name, credential=token)

    async def rights_of(self, viewer: Viewer, namespaces: Collection[str]) -> Rights:
        """See `Access`."""
        known = await self._known(viewer.credential)
        try:
            readable = await self._viewers.find_namespaces(known, IN_NAMESPACE, namespaces)
            has_nodes = await self._viewers.is_allowed(known, ReadRight(kind=NODES))
            is_everywhere = has_nodes and await self._has_all(known, IN_NAMESPACE)
            return Rights(
                namespaces=None if is_everywhere else readable,
                can_read_nodes=has_nodes,
                can_plan=is_everywhere and bool(self._to_plan) and await self._has_all(known, self._to_plan),
            )
        except AccessUnknownError as error:
            raise _unavailable(error) from error

    async def _known(self, token: str) -> TokenUser:
        try:
            known = await self._viewers.find_viewer(token) if token else None
        except AccessUnknownError as error:
            raise _unavailable(error) from error
        if known is None:
            raise web.HTTPUnauthorized(text=_HINT, headers={"WWW-Authenticate": 'Bearer realm="edl"'})
        return known

    async def _has_all(self, viewer: TokenUser, rights: Collection[ReadRight]) -> bool:
        for right in rights:
            if not await self._viewers.is_allowed(viewer, right):
                return False
        return True


def _unavailable(error: AccessUnknownError) -> web.HTTPServiceUnavailable:
    wait_s = max(1, round(error.retry_after_s))
    return web.HTTPServiceUnavailable(text=_UNKNOWN, headers={"Retry-After": str(wait_s)})
