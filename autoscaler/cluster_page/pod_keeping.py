"""`PodKeeper` by the API server: a viewer's own credentials carry the write, so that it decides (ADR 0272).

`TokenKeeper` is that of the process in the cluster: a connection for one write, under the viewer's token and nothing
else.  `OwnKeeper` is that of `edl page`, whose process is the viewer's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from autoscaler.cluster_page.reviews import ReadRight, own_access_review, parse_access_review
from autoscaler.cluster_page.viewer_access import AccessUnknownError, ViewerAccess
from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
)
from autoscaler.clusters.kubernetes.api.kinds import OWN_ACCESS_REVIEWS, PODS
from autoscaler.clusters.kubernetes.writes.pod_keep import write_keep
from autoscaler.errors import ClusterError
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.answers.keeping import KeptPod


class ClosingApi(Api, Protocol):
    """An API server's client that is closed by whoever opened it."""

    async def close(self) -> None: ...


ConnectAs = Callable[[str], Awaitable[ClosingApi]]
"""Returns a client that has this bearer token, and no other credentials.  Raises ClusterError."""


class TokenKeeper:
    """Keeps pods under the viewer's token.  `server_now_s`: Unix time by the API server's clock (`ServerClock`)."""

    def __init__(self, viewers: ViewerAccess, connect_as: ConnectAs, *, server_now_s: Callable[[], float]) -> None:
        self._viewers = viewers
        self._connect_as = connect_as
        self._server_now_s = server_now_s

    async def may_keep(self, viewer: Viewer, namespace: str) -> bool:
        """See `PodKeeper`: by a review, kept as those of reading are.  What is not known is not offered."""
        try:
            known = await self._viewers.find_viewer(viewer.credential)
            return known is not None and await self._viewers.is_allowed(known, _right(namespace))
        except AccessUnknownError:
            return False

    async def keep(self, viewer: Viewer, pod: KeptPod, for_s: float) -> None:
        """See `PodKeeper`."""
        with _Refusals(pod):
            api = await self._connect_as(viewer.credential)
            try:
                await _write(api, pod, for_s, self._server_now_s())
            finally:
                await api.close()


class OwnKeeper:
    """Keeps pods with the credentials of this process, which are the viewer's.

    `server_now_s`: Unix time by the API server's clock (`ServerClock`): this process runs on the viewer's machine.
    """

    def __init__(self, api: Api, *, server_now_s: Callable[[], float]) -> None:
        self._api = api
        self._server_now_s = server_now_s

    async def may_keep(self, viewer: Viewer, namespace: str) -> bool:  # noqa: ARG002 - of the port
        """See `PodKeeper`."""
        try:
            return parse_access_review(await self._api.create(OWN_ACCESS_REVIEWS, own_access_review(_right(namespace))))
        except ClusterError:
            return False

    async def keep(self, viewer: Viewer, pod: KeptPod, for_s: float) -> None:  # noqa: ARG002 - of the port
        """See `PodKeeper`."""
        with _Refusals(pod):
            await _write(self._api, pod, for_s, self._server_now_s())


def _right(namespace: str) -> ReadRight:
    return ReadRight(kind=PODS, namespace=namespace, verb="patch")


async def _write(api: Api, pod: KeptPod, for_s: float, server_now_s: float) -> None:
    where = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    await write_keep(api, **where, for_s=for_s, server_now_s=server_now_s)


class _Refusals:
    """What the API server refuses, as the answer that the viewer gets: it names no more than they asked for."""

    def __init__(self, pod: KeptPod) -> None:
        self._name = f"{pod.namespace}/{pod.name}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        match error:
            case ForbiddenError():
                told = f"You may not change pod {self._name}: who may patch pods of its namespace can keep it.\n"
                raise web.HTTPForbidden(text=told) from error
            case UnauthorizedError():
                raise web.HTTPUnauthorized(text="Your token is not valid any more.\n") from error
            case NotFoundError():
                raise web.HTTPNotFound(text=f"There is no pod {self._name} any more.\n") from error
            case ConflictError():
                told = f"Pod {self._name} is another one by now; reload its page.\n"
                raise web.HTTPConflict(text=told) from error
            case ClusterError():
                told = f"Whether pod {self._name} is kept is not known: the API server did not answer. Look again.\n"
                raise web.HTTPServiceUnavailable(text=told) from error
