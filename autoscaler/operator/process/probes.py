"""Probes of the operator: /healthz, /readyz and /metrics on one port.

*Healthy*: the process answers and, while it leads, the loop makes passes.  *Ready*: it knows the leader; a leader has
listed the cluster.  An unreachable API server does not make the operator unhealthy: a restart would not help.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from autoscaler.errors import InvalidSpecError
from autoscaler.operator.process.operator_settings import ProbeAddress
from master.api.host.http_pages import PROMETHEUS_TEXT, CachedPage, Page, listen_at, serving

STUCK_AFTER_S: Final = 120.0
"""A pass of the loop is bounded by its calls, 30 s each; one that takes this long hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """State of this operator.  `passed_s`: since the last pass of the loop; None while it does not lead."""

    knows_leader: bool
    is_leading: bool
    is_synced: bool = False
    passed_s: float | None = None
    problem: str = ""  # of the watches, for people

    @property
    def is_healthy(self) -> bool:
        """True unless the loop hangs."""
        return not self.is_leading or self.passed_s is None or self.passed_s < STUCK_AFTER_S

    @property
    def is_ready(self) -> bool:
        """True if this operator leads and is synced, or could take over."""
        return self.is_synced if self.is_leading else self.knows_leader


@asynccontextmanager
async def serve_probes(
    address: ProbeAddress, *, state: Callable[[], OperatorState], render: Callable[[], bytes]
) -> AsyncIterator[int]:
    """Serve the probes inside the context, which yields the port.

    Raises:
        InvalidSpecError: nobody can listen there, such as where another process does.
    """
    try:
        listening = listen_at(address.host, address.port)
    except OSError as error:
        problem = f"{address.host}:{address.port} cannot be used: {error.strerror or error}"
        raise InvalidSpecError("--listen", problem, "name another address") from None
    port: int = listening.getsockname()[1]
    pages: dict[str, Callable[[], Page]] = {
        "/healthz": lambda: _healthz(state()),
        "/readyz": lambda: _readyz(state()),
        "/metrics": CachedPage(lambda: Page(body=render(), kind=PROMETHEUS_TEXT)),
    }
    async with serving(listening, pages):
        yield port


def _healthz(state: OperatorState) -> Page:
    text = "ok" if state.is_healthy else f"the loop has not gone round for {state.passed_s:.0f} s"
    return _response(text, is_good=state.is_healthy)


def _readyz(state: OperatorState) -> Page:
    role = "leads" if state.is_leading else "stands by"
    text = f"{role}{'' if state.is_ready else ', not ready'}{': ' + state.problem if state.problem else ''}"
    return _response(text, is_good=state.is_ready)


def _response(text: str, *, is_good: bool) -> Page:
    return Page(body=f"{text}\n".encode(), status=HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE)
