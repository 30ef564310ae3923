"""Port: who asks, and what they may read.

`edl run` has a token in the page's address (`token_access`), the operator the API server's own tokens and rights.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from autoscaler.views.documents import Rights


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """A person who is known.  `name`: for people; `credential`: what the adapter needs to ask for rights again."""

    name: str
    credential: str = ""


class Access(Protocol):
    """Who may read what.  Every answer may be kept by the adapter for some seconds; the page keeps none for longer."""

    async def identify(self, request: web.Request) -> Viewer:
        """Return who asks.

        Raises:
            web.HTTPException: nobody who is known: a redirection to where one signs in, 401 or 403 with a text that
                says what to do.
        """

    async def rights_of(self, viewer: Viewer, namespaces: Collection[str]) -> Rights:
        """Return what the viewer may read now, of these namespaces.

        Raises:
            web.HTTPException: the viewer is not known any more; an open stream ends with it.
        """
