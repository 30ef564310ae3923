"""Access by a token in the page's address, for one person on the machine of a run.

The address is opened once; a cookie that no other site can use replaces it, so that the token stands in no history and
no log.  Nothing is sent to other sites and nothing may be read from them (`request_checks`).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from typing import Final

from aiohttp import web

from autoscaler.page.access import Viewer
from autoscaler.views.documents import EVERYTHING, Rights

PARAMETER: Final = "token"
_BYTES: Final = 24
_LONGEST: Final = 200
_HINT: Final = "This page needs the address that was printed when the run began, with its token.\n"


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(_BYTES)


class TokenAccess:
    """One token, which may read everything.  `port`: distinguishes the cookies of runs on one machine."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self._viewer = Viewer(name="")
        self._cookie = f"edl-page-{port}"

    async def identify(self, request: web.Request) -> Viewer:
        """See `Access`.  The token in the address is exchanged for a cookie."""
        if PARAMETER in request.query:
            self._check(request.query[PARAMETER])
            rest = request.rel_url.without_query_params(PARAMETER)
            answer = web.HTTPSeeOther(rest)
            answer.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="Strict", path="/")
            raise answer
        kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
        self._check(bearer if kind == "Bearer" else request.cookies.get(self._cookie, ""))
        return self._viewer

    async def rights_of(self, viewer: Viewer, namespaces: Collection[str]) -> Rights:  # noqa: ARG002 - of the port
        """See `Access`."""
        return EVERYTHING

    def _check(self, given: str) -> None:
        if len(given) > _LONGEST or not hmac.compare_digest(given.encode(errors="replace"), self._token):
            raise web.HTTPUnauthorized(text=_HINT)
