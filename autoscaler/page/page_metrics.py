"""Metrics of the page: who looks, what is answered, and how long a part takes.  Labels are names of pages and classes
of answers, so that nothing that a viewer sends makes a series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class PageMetrics:
    """Metrics of one application in `registry`."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self._viewers = Gauge("edl_page_viewers", "Open pages that renew themselves.", registry=self.registry)
        self._topics = Gauge(
            "edl_page_topics",
            "Pages that are kept current, one for all viewers with equal rights.",
            registry=self.registry,
        )
        self._part_seconds = Histogram(
            "edl_page_part_seconds",
            "Time to make the part of a page that renews itself, of all viewers with equal rights.",
            ("page",),
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        self._answers = Counter(
            "edl_page_answers", "Answers by class: 2xx, 3xx, 4xx or 5xx.", ("code",), registry=self.registry
        )

    def watch(self, viewers: Callable[[], float], topics: Callable[[], float]) -> None:
        """Show these numbers from now on."""
        self._viewers.set_function(viewers)
        self._topics.set_function(topics)

    def record_part(self, page: str, seconds: float) -> None:
        """Count a part of a page, which took so long."""
        self._part_seconds.labels(page).observe(seconds)

    async def count_answer(self, request: web.Request, response: web.StreamResponse) -> None:  # noqa: ARG002 - a signal
        """Count an answer (a signal of aiohttp)."""
        self._answers.labels(f"{response.status // 100}xx").inc()

    def render(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self.registry)
