"""Samples of the last hour and day out of Prometheus: what the operator exported of the cluster's room.

The problem: the page's own samples begin with its process.  A Prometheus keeps them over restarts, but may be slow, or
away, or of several clusters, and hundreds of viewers look.  So one query of a kind is under way at a time, its answer
is kept for as long as a point of the plot covers, and every answer has a deadline and a size.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from autoscaler.errors import InvalidSpecError, TemporaryError
from autoscaler.views.cluster.pod_view import NodeUnit
from autoscaler.views.history.samples import MOST_OWNERS, REST, RINGS, ClusterSample

POINTS: Final = 300
"""Of a plot, as many as `time_view` shows."""

DEADLINE_S: Final = 5.0
MOST_BYTES: Final = 8 << 20
PAUSE_AFTER_FAILURE_S: Final = 10.0
_LABEL: Final = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_METRICS: Final = {NodeUnit.CORES: "cpu_cores", NodeUnit.GPUS: "gpus"}
_USED: Final = ("others", "core", "surplus")

SeriesValues = dict[float, dict[tuple[str, ...], float]]
"""Values by instant, and there by labels."""


class PrometheusHistory:
    """`SampleHistory` of a Prometheus at this address.  `labels`: of this cluster's series there; `clock` runs evenly.

    Raises:
        InvalidSpecError: `url` is none.
    """

    name: Final = "Prometheus"

    def __init__(self, url: str, labels: Mapping[str, str], *, clock: Callable[[], float]) -> None:
        self._url = checked_url(url).rstrip("/")
        self._labels = [f"{name}={json.dumps(value)}" for name, value in labels.items()]
        self._clock = clock
        self._kept: dict[tuple[str, NodeUnit | None], tuple[float, Sequence[ClusterSample]]] = {}
        self._asked: dict[tuple[str, NodeUnit | None], asyncio.Task[Sequence[ClusterSample]]] = {}
        self._failed_at_s, self._failure = -math.inf, ""

    async def samples(self, span: str, unit: NodeUnit | None, *, now_s: float) -> Sequence[ClusterSample]:
        """See `SampleHistory`."""
        key, step_s = (span, unit), RINGS[span][0] / POINTS
        at_s, kept = self._kept.get(key, (-math.inf, ()))
        if self._clock() - at_s < step_s:
            return kept
        if self._clock() - self._failed_at_s < PAUSE_AFTER_FAILURE_S:
            raise TemporaryError(self._failure, retry_after_s=PAUSE_AFTER_FAILURE_S)
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._read(key, now_s), name="page history")
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: tuple[str, NodeUnit | None], task: asyncio.Task[Sequence[ClusterSample]]) -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # it may be that nobody waits for it any more

    async def _read(self, key: tuple[str, NodeUnit | None], now_s: float) -> Sequence[ClusterSample]:
        try:
            async with asyncio.timeout(DEADLINE_S):
                found = await self._ask(*key, now_s)
        except TimeoutError:
            raise self._failed(f"Prometheus did not answer within {DEADLINE_S:g} s") from None
        except aiohttp.ClientError as error:
            raise self._failed(f"Prometheus cannot be asked ({type(error).__name__})") from None
        self._kept[key] = (self._clock(), found)
        return found

    async def _ask(self, span: str, unit: NodeUnit | None, now_s: float) -> Sequence[ClusterSample]:
        of_cluster = self._selected('__name__=~"edl_cluster_(cpu_cores|gpus|wanted_.*|pods|ready_pods)"')
        totals = await self._range(f"max by (__name__, use) ({of_cluster})", span, now_s, ("__name__", "use"))
        unit = unit or (NodeUnit.GPUS if _has_gpus(totals) else NodeUnit.CORES)
        of_jobs = self._selected(f'__name__="edl_job_held_{_METRICS[unit]}"')
        largest = f"topk({MOST_OWNERS}, max by (namespace, job) ({of_jobs}) > 0)"
        jobs = await self._range(largest, span, now_s, ("namespace", "job"))
        return samples_of(totals, jobs, unit)

    def _selected(self, *matchers: str) -> str:
        return "{" + ",".join((*matchers, *self._labels)) + "}"

    async def _range(self, query: str, span: str, now_s: float, labels: Sequence[str]) -> SeriesValues:
        """Return the values of an expression along the span, by these labels.  One series has one operator's."""
        span_s = RINGS[span][0]
        asked = {"query": query, "start": now_s - span_s, "end": now_s, "step": span_s / POINTS}
        limits = aiohttp.ClientTimeout(total=DEADLINE_S)
        async with (
            aiohttp.ClientSession(timeout=limits) as session,
            session.post(f"{self._url}/api/v1/query_range", data=asked, allow_redirects=False) as answer,
        ):
            body = bytearray()
            async for piece in answer.content.iter_chunked(1 << 16):
                body += piece
                if len(body) > MOST_BYTES:
                    raise self._failed(f"Prometheus answers with more than {MOST_BYTES >> 20} MiB")
            if answer.status != 200:
                raise self._failed(f"Prometheus refuses the query (HTTP {answer.status})")
        return await asyncio.to_thread(self._points_of, bytes(body), labels)

    def _points_of(self, body: bytes, labels: Sequence[str]) -> SeriesValues:
        found: SeriesValues = {}
        try:
            for series in json.loads(body)["data"]["result"]:
                key = tuple(str(series["metric"].get(name, "")) for name in labels)
                for at_s, written in series["values"]:
                    value = float(written)
                    if math.isfinite(value):
                        found.setdefault(float(at_s), {})[key] = value
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._failed("Prometheus answers with something else than samples") from None
        return found

    def _failed(self, told: str) -> TemporaryError:
        self._failed_at_s, self._failure = self._clock(), told
        return TemporaryError(told, retry_after_s=PAUSE_AFTER_FAILURE_S)


def checked_url(url: str) -> str:
    """Return the address.  Raises InvalidSpecError if it is none of HTTP, or has a user or a query in it."""
    expected = "http://HOST:PORT, as in http://prometheus.monitoring:9090"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise InvalidSpecError("--prometheus", f"is {url!r}", expected) from None
    if not is_address or parts.username is not None or parts.query or parts.fragment:
        raise InvalidSpecError("--prometheus", f"is {url!r}", expected)
    return url


def samples_of(totals: SeriesValues, jobs: SeriesValues, unit: NodeUnit) -> Sequence[ClusterSample]:
    """Return a sample of each instant at which the operator told the cluster's room, the oldest first."""
    return tuple(_sample(at_s, totals[at_s], jobs.get(at_s, {}), unit) for at_s in sorted(totals))


def _sample(
    at_s: float, totals: Mapping[tuple[str, ...], float], jobs: Mapping[tuple[str, ...], float], unit: NodeUnit
) -> ClusterSample:
    name = _METRICS[unit]
    by_use = {use: value for (metric, use), value in totals.items() if metric == f"edl_cluster_{name}"}
    held = tuple(sorted((f"{namespace}/{job}", _milli(value)) for (namespace, job), value in jobs.items()))
    used, web = _milli(sum(by_use.get(use, 0.0) for use in _USED)), _milli(by_use.get("others", 0.0))
    rest = used - web - sum(amount for _, amount in held)
    return ClusterSample(
        at_s=at_s,
        unit=unit,
        capacity=_milli(sum(by_use.values())),
        used=used,
        wanted=_milli(totals.get((f"edl_cluster_wanted_{name}", ""), 0.0)),
        web=web,
        jobs=(*held, (REST, rest)) if rest > 0 else held,
        sizes=(),
        web_wanted=round(totals.get(("edl_cluster_pods", ""), 0.0)),
        web_running=round(totals.get(("edl_cluster_ready_pods", ""), 0.0)),
        has_more=rest > 0,
    )


def _has_gpus(totals: SeriesValues) -> bool:
    amounts = (values.items() for values in totals.values())
    return any(value > 0 for items in amounts for (metric, _), value in items if metric == "edl_cluster_gpus")


def _milli(amount: float) -> int:
    return round(1000 * amount)


def labels_of(pairs: Iterable[str]) -> Mapping[str, str]:
    """Return labels written as NAME=VALUE.  Raises InvalidSpecError."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _LABEL.fullmatch(name):
            raise InvalidSpecError("--prometheus-labels", f"{pair!r} is no label", "NAME=VALUE,...")
        found[name] = value
    return found
