"""Checks of every request before anything is read, and headers of every answer.

The problem: a page on this machine, or behind a port-forward, is reachable from every site that its viewer's browser
has open.  A site may name it by a host of its own (DNS rebinding), ask in the viewer's name (cross-site requests), or
show it in a frame.  Nobody else's host, origin or frame is let in, and the page asks nobody else for anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscaler.page.answers import send_whole

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONGEST_VALUE: Final = 500
"""Characters of a parameter."""

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})

FORM_HEADERS: Final = {"Referrer-Policy": "same-origin"}
"""Of a page with a form that changes something: without a referrer browsers say of its POST that its origin is null."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def request_checks(hosts: frozenset[str]) -> Middleware:
    """Return the middleware.  `hosts`: names, without port, under which the page may be asked for."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check_host(request, hosts)
            check_site(request)
            return await handler(request)
        except web.HTTPException as refusal:
            refusal.headers.update({**HEADERS, "Cache-Control": "no-store"})
            await send_whole(request, refusal)
            raise

    return check


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:  # noqa: ARG001 - of the signal
    """Add the headers that every answer has (a signal of aiohttp)."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")


def check_host(request: web.Request, hosts: frozenset[str]) -> None:
    """Raise 421 unless the request is for one of these hosts."""
    try:
        name = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        name = ""
    if name not in hosts:
        raise web.HTTPMisdirectedRequest(
            text=f"This page is not known by that name; it is at {' or '.join(sorted(hosts))}.\n"
        )


def check_site(request: web.Request) -> None:
    """Raise 403 for a request that another site has caused, a link that was followed apart."""
    origin = request.headers.get("Origin")
    if origin is not None and _netloc_of(origin) != request.headers.get("Host", "").casefold():
        raise web.HTTPForbidden(text="Requests of other sites are refused.\n")
    is_followed = (
        request.headers.get("Sec-Fetch-Mode") == "navigate" and request.headers.get("Sec-Fetch-Dest") == "document"
    )
    if request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"} and not is_followed:
        raise web.HTTPForbidden(text="Requests of other sites are refused.\n")


def check_query(request: web.Request, known: Collection[str]) -> None:
    """Raise 400 unless each parameter is known, is given once and is short.

    What else stands in an address would make one more page of it, which is rendered and kept for itself.
    """
    for name, value in request.query.items():
        if name not in known:
            told = f"known are {', '.join(sorted(known))}" if known else "there is none"
            raise web.HTTPBadRequest(text=f"{name[:LONGEST_VALUE]!r} is no parameter of this page: {told}.\n")
        if len(request.query.getall(name)) > 1:
            raise web.HTTPBadRequest(text=f"{name}: is given more than once.\n")
        if len(value) > LONGEST_VALUE:
            raise web.HTTPBadRequest(text=f"{name}: is longer than {LONGEST_VALUE} characters.\n")


def check_own_form(request: web.Request) -> None:
    """Raise 403 unless a page of this very address has sent the form.

    `check_site` has compared the origin; here it must be there, for a request that changes something.
    """
    if "Origin" not in request.headers:
        raise web.HTTPForbidden(text="A form is taken from this page alone: the header Origin is missing.\n")
    check_site(request)


def _netloc_of(origin: str) -> str | None:
    """Return host and port of an origin; None for text that is no origin (`http://[`), which equals no host."""
    try:
        return urlsplit(origin).netloc.casefold()
    except ValueError:
        return None
