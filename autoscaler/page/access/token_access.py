"""Access by a token in the page's address, for one person on the machine of a run.

The address is opened once in a browser, which gets a session for the token and keeps it in a cookie: the token stands
in no history, no log and no cookie.  A browser sends a cookie to every port of the host, so that any other server on
this machine can read the session.  It counts for this page's port alone, ends with the run's token, which cannot be
computed from it, and only for the user of the machine to whose browser it was given (`peer_user`).  Nothing is sent
to other sites and nothing may be read from them (`request_checks`).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Collection
from typing import Final
from weakref import WeakKeyDictionary

from aiohttp import web

from autoscaler.page.access.peer_user import find_peer_uid
from autoscaler.page.access.viewers import Viewer
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
        self._port = port
        self._cookie = f"edl-page-{port}"
        self._uids: WeakKeyDictionary[asyncio.BaseTransport, int | None] = WeakKeyDictionary()

    async def identify(self, request: web.Request) -> Viewer:
        """See `Access`.  The token in the address is exchanged for a session."""
        if PARAMETER in request.query:
            self._check_token(request.query[PARAMETER])
            rest = request.rel_url.without_query_params(PARAMETER)
            answer = web.HTTPSeeOther(rest)
            session = self._session(secrets.token_urlsafe(_BYTES), request)
            answer.set_cookie(self._cookie, session, httponly=True, samesite="Strict", path="/")
            raise answer
        kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            self._check_token(bearer)
        else:
            self._check_session(request)
        return self._viewer

    async def rights_of(self, viewer: Viewer, namespaces: Collection[str]) -> Rights:  # noqa: ARG002 - of the port
        """See `Access`."""
        return EVERYTHING

    def _check_token(self, given: str) -> None:
        if not _is_equal(given, self._token.decode()):
            raise web.HTTPUnauthorized(text=_HINT)

    def _check_session(self, request: web.Request) -> None:
        given = request.cookies.get(self._cookie, "")
        number, _, _ = given.partition(".")
        if len(given) > _LONGEST or not _is_equal(given, self._session(number, request)):
            raise web.HTTPUnauthorized(text=_HINT)

    def _session(self, number: str, request: web.Request) -> str:
        """Return the session of this number for the user whose request this is: a number and what proves it.

        Whoever has the token can prove it, so that a page which goes on at the same port with the same token takes the
        sessions of the one before it, and nothing has to be kept.
        """
        bound = f"edl page session\n{self._port}\n{self._uid_of(request.transport)}\n{number}"
        return f"{number}.{hmac.digest(self._token, bound.encode(errors='replace'), 'sha256').hex()}"

    def _uid_of(self, transport: asyncio.BaseTransport | None) -> int | None:
        """Return the user at the other end, asked for once in a connection: the list of all sockets may be long."""
        if transport is None:
            return None
        if transport not in self._uids:
            self._uids[transport] = find_peer_uid(transport)
        return self._uids[transport]


def _is_equal(given: str, wanted: str) -> bool:
    """True if both are equal, in a time that does not tell where they differ."""
    return len(given) <= _LONGEST and hmac.compare_digest(given.encode(errors="replace"), wanted.encode())
