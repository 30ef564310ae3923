"""The one thing that the page changes: a pod of others keeps its unused GPUs for a while, because a viewer says so.

The API server decides whether that viewer may, by their own credentials; the page has no right of its own to write
(ADR 0272).  The request is a form's, from the pod's page, and no other site's: it needs an Origin that is the page's,
which browsers send with every POST and no site can choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from aiohttp import web

from autoscaler.page.access.request_checks import check_own_form
from autoscaler.page.access.viewers import Access, Viewer
from autoscaler.page.page_source import PageSource
from autoscaler.views.pages.pod_page_view import PodPageView, pod_page_view

KEEP_PATH: Final = "/pods/{namespace}/{name}/keep"
CHOICES: Final[Mapping[str, float]] = {"2h": 7_200.0, "8h": 28_800.0, "24h": 86_400.0, "0s": 0.0}
"""Seconds by what is sent, as `edl keep --for` reads it; 0: no longer."""

FORM_LIMIT_S: Final = 10.0
"""For a form of some hundred bytes to come after its head."""

WHO_MAY: Final = "Who may patch pods of the namespace may keep it"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPod:
    """A pod, and no other of its name."""

    namespace: str
    name: str
    uid: str


class PodKeeper(Protocol):
    """Port: keeps pods with a viewer's own credentials."""

    async def may_keep(self, viewer: Viewer, namespace: str) -> bool:
        """True if the viewer may change pods there: it decides what is offered, and not what is done."""

    async def keep(self, viewer: Viewer, pod: KeptPod, for_s: float) -> None:
        """Have its GPUs left alone for so long; 0: no longer.  It counts once this returns.

        Raises:
            web.HTTPException: 403 the viewer may not, 404 or 409 it is not there any more, 503 it is not known.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepForm:
    """What the pod's page offers.  `may_keep` False: the command alone, for somebody who may."""

    address: str
    uid: str
    may_keep: bool
    is_kept: bool
    command: str


class Keeping:
    """The form of a pod's page, and what it does.  `keeper` None: there is none, only the command."""

    def __init__(
        self, source: PageSource, access: Access, keeper: PodKeeper | None, *, now_s: Callable[[], float]
    ) -> None:
        self._source = source
        self._access = access
        self._keeper = keeper
        self._now_s = now_s

    async def form_of(self, viewer: Viewer, view: object) -> KeepForm | None:
        """Return the form for this viewer; None for a page that is of no pod that can be kept."""
        if not isinstance(view, PodPageView) or not view.can_be_kept:
            return None
        may_keep = False
        if self._keeper is not None:
            may_keep = await self._keeper.may_keep(viewer, view.pod.namespace)
        return make_form(view, may_keep=may_keep, now_s=self._now_s())

    async def answer(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Keep a pod that the viewer sees, and show its page again."""
        check_own_form(request)
        if self._keeper is None:
            raise web.HTTPForbidden(text="This page changes nothing; edl keep does.\n")
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        await self._check_seen(viewer, namespace, name)
        try:
            async with asyncio.timeout(FORM_LIMIT_S):
                given = await request.post()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="The form did not come in time.\n") from None
        chosen, uid = given.get("for"), given.get("uid")
        if not isinstance(chosen, str) or chosen not in CHOICES:
            raise web.HTTPBadRequest(text=f"for: is none of {', '.join(CHOICES)}.\n")
        if not isinstance(uid, str) or not uid:
            raise web.HTTPBadRequest(text="uid: is missing; reload the pod's page.\n")
        await self._keeper.keep(viewer, KeptPod(namespace=namespace, name=name, uid=uid), CHOICES[chosen])
        raise web.HTTPSeeOther(f"/pods/{quote(namespace, safe='')}/{quote(name, safe='')}")

    async def _check_seen(self, viewer: Viewer, namespace: str, name: str) -> None:
        """Raise 404 unless the viewer may see this pod: nobody learns here which names others use."""
        documents = self._source.documents()
        rights = await self._access.rights_of(viewer, documents.namespaces() if documents is not None else ())
        view = None if documents is None else pod_page_view(documents.readable(rights), (), namespace, name)
        if view is None or not view.can_be_kept:
            raise web.HTTPNotFound(
                text=f"There is no pod {namespace}/{name} that can be kept, or you may not see it.\n"
            )


def make_form(view: PodPageView, *, may_keep: bool, now_s: float) -> KeepForm:
    """Return the form of a pod that can be kept."""
    namespace, name = view.pod.namespace, view.pod.name
    return KeepForm(
        address=KEEP_PATH.format(namespace=quote(namespace, safe=""), name=quote(name, safe="")),
        uid=view.uid,
        may_keep=may_keep,
        is_kept=view.is_kept_at(now_s),
        command=f"edl keep {name} -n {namespace} --for 2h",
    )
