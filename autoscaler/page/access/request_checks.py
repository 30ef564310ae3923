"""Checks of every request before anything is read, and headers of every answer.

The problem: a page on this machine, or behind a port-forward, is reachable from every site that its viewer's browser
has open.  A site may name it by a host of its own (DNS rebinding), ask in the viewer's name (cross-site requests), or
show it in a frame.  Nobody else's host, origin or frame is let in, and the page asks nobody else for anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscaler.page.access.answer_limits import send_whole

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONGEST_VALUE: Final = 500
"""Characters of a parameter."""

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})

FORM_HEADERS: Final = {"Referrer-Policy": "same-origin"}
"""Of a page with a form that changes something: without a referrer browsers say of its POST that its origin is null."""

ENCRYPTED_HEADERS: Final = {"Strict-Transport-Security": f"max-age={30 * 86_400}"}
"""Of a page that ends TLS itself (RFC 6797), for 30 days from each visit; not of `LOOPBACK_HOSTS`, whose other ports
are somebody else's and may serve HTTP: the header is for a host, whatever its port."""

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


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every answer has (a signal of aiohttp)."""
    is_strict = request.secure and _hostname_of(request) not in LOOPBACK_HOSTS
    for name, value in (HEADERS | (ENCRYPTED_HEADERS if is_strict else {})).items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")


def check_host(request: web.Request, hosts: frozenset[str]) -> None:
    """Raise 421 unless the request is for one of these hosts."""
    if _hostname_of(request) not in hosts:
        raise web.HTTPMisdirectedRequest(
            text=f"This page is not known by that name; it is at {' or '.join(sorted(hosts))}.\n"
        )


def check_site(request: web.Request) -> None:
    """Raise 403 for a request that another site has caused, a link that was followed apart.

    The origin's scheme is compared where the page ends TLS itself; elsewhere a proxy may have ended it.
    """
    origin = request.headers.get("Origin")
    if origin is not None and not _is_own(origin, request):
        raise web.HTTPForbidden(text="Requests of other sites are refused.\n")
    is_followed = (
        request.headers.get("Sec-Fetch-Mode") == "navigate" and request.headers.get("Sec-Fetch-Dest") == "document"
    )
    if request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"} and not is_followed:
        raise web.HTTPForbidden(text="Requests of other sites are refused.\n")


def check_query(request: web.Request, known: Mapping[str, Collection[str]]) -> None:
    """Raise 400 unless each parameter is known, is given once, is short, and is one of its choices where it has some.

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
        if known[name] and value not in known[name]:
            raise web.HTTPBadRequest(text=f"{name}: is none of {', '.join(known[name])}.\n")


def check_own_form(request: web.Request) -> None:
    """Raise 403 unless a page of this very address has sent the form.

    `check_site` has compared the origin; here it must be there, for a request that changes something, and where the
    browser says what caused the request it must have been this page.
    """
    if "Origin" not in request.headers:
        raise web.HTTPForbidden(text="A form is taken from this page alone: the header Origin is missing.\n")
    check_site(request)
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise web.HTTPForbidden(text="A form is taken from this page alone.\n")


def _hostname_of(request: web.Request) -> str:
    """Return the host that is asked for, without port; empty for text that is none (`[`)."""
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_own(origin: str, request: web.Request) -> bool:
    """Whether it is this page's, as far as the page can know; text that is no origin (`http://[`) is not."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_scheme = not request.secure or parts.scheme == "https"
    return is_scheme and parts.netloc.casefold() == request.headers.get("Host", "").casefold()
