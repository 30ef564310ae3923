"""/healthz, /readyz and /metrics on one port.

*Healthy*: this process answers and, while it leads, its loop goes round.  *Ready*: it knows who leads; a leader has
seen the cluster.  An API server that does not answer makes nobody unhealthy: a restart would not help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from autoscaler.operator.metrics import CONTENT_TYPE
from autoscaler.operator.settings import Address

STUCK_AFTER_S: Final = 120.0
"""A pass of the loop is bounded by its calls, 30 s each; one that takes this long hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What this operator is doing.  `passed_s`: since the loop last went round; None while it does not lead."""

    knows_leader: bool
    is_leading: bool
    is_synced: bool = False
    passed_s: float | None = None
    problem: str = ""  # of the watches, for people

    @property
    def is_healthy(self) -> bool:
        """Whether a restart could only harm."""
        return not self.is_leading or self.passed_s is None or self.passed_s < STUCK_AFTER_S

    @property
    def is_ready(self) -> bool:
        """Whether it does what it is there for, or could at once."""
        return self.is_synced if self.is_leading else self.knows_leader


class HealthServer:
    """An async context: inside it the port is open.  `port` is where."""

    port: int

    def __init__(self, address: Address, *, state: Callable[[], State], render: Callable[[], bytes]) -> None:
        self._address = address
        self._state = state
        self._render = render
        application = web.Application()
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host, self._address.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        state = self._state()
        text = "ok" if state.is_healthy else f"the loop has not gone round for {state.passed_s:.0f} s"
        return web.Response(text=f"{text}\n", status=200 if state.is_healthy else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        state = self._state()
        role = "leads" if state.is_leading else "stands by"
        text = f"{role}{'' if state.is_ready else ', not ready'}{': ' + state.problem if state.problem else ''}"
        return web.Response(text=f"{text}\n", status=200 if state.is_ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._render(), headers={"Content-Type": CONTENT_TYPE})
