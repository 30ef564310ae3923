"""Prometheus metrics of a master; an event costs the writer no more than an addition.

Counters are plain integers of the running term.  Gauges are computed from the job's status at a scrape, in a thread
of its own: the state is one frozen value, so a thread may read it.  The kubelet's liveness probe uses this page too,
so it must stay reachable (`api.host.http_pages`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from master.api.host.http_pages import PROMETHEUS_TEXT, CachedPage, Page, listen_at, serving
from master.api.identities import MemberRole
from master.api.master_status import JobStatus
from master.errors import PortInUseError
from master.job.domain.durable_records import SECOND
from master.process.master_config import ListenAddress
from master.term.counters import Counters

PREFIX: Final = "edl_master"


class MetricsSource(Protocol):
    """Source of the metrics: status, counters and role of this process."""

    @property
    def counts(self) -> Counters: ...

    @property
    def stream_count(self) -> int: ...

    @property
    def waiting_write_count(self) -> int: ...

    def try_status(self) -> JobStatus | None:
        """The job's status; None: this master does not lead."""
        ...


class MasterCollector(Collector):
    """Makes the samples at a scrape."""

    def __init__(self, master: MetricsSource, *, wall_s: Callable[[], float] = time.time) -> None:
        self._master = master
        self._wall_s = wall_s

    def collect(self) -> Iterator[Metric]:
        counts = self._master.counts
        yield _counter("events", "Events that the writer has handled.", counts.events)
        yield _counter("received_messages", "Messages received from members.", counts.received)
        yield _counter("sent_messages", "Messages put on members' streams.", counts.sent)
        yield _counter("commits", "Checkpoints committed.", counts.commits)
        took = "Seconds that checkpoints took, from the begin of the commit to its end."
        yield SummaryMetricFamily(
            f"{PREFIX}_commit_seconds", took, count_value=counts.commits_timed, sum_value=counts.commit_ns / SECOND
        )
        yield _counter("terms", "Terms begun by this process.", counts.terms)
        taken_over = "Buckets of lost servers that were promoted at their backups."
        yield _counter("buckets_taken_over", taken_over, counts.taken_over)
        yield _gauge("streams", "Open streams of members.", self._master.stream_count)
        yield _gauge("waiting_writes", "Writes that wait for the store.", self._master.waiting_write_count)
        yield _gauge("clock_timestamp_seconds", "Unix time of this process.", self._wall_s())
        status = self._master.try_status()
        yield _gauge("leads", "1 when this master leads its job.", int(status is not None))
        if status is not None:
            yield from _of_status(status)


def _of_status(status: JobStatus) -> Iterator[Metric]:
    yield _gauge("term", "The leader's term.", status.term)
    yield _gauge("lineage", "Current lineage.", status.lineage)
    problems = GaugeMetricFamily(f"{PREFIX}_problem", "1 for each present problem, by kind.", labels=["what"])
    texts = (
        status.problem,
        status.checkpoint_problem,
        status.store_problem,
        status.moves_problem,
        status.data_problem,
        status.trainers_problem,
    )
    for what, problem in zip(("training", "checkpoints", "store", "moves", "data", "trainers"), texts, strict=True):
        problems.add_metric([what], int(bool(problem)))
    yield problems
    places = GaugeMetricFamily(f"{PREFIX}_positions", "Positions of the job by place.", labels=["place"])
    for place in ("todo", "leased", "done", "skipping", "committed", "quarantined"):
        places.add_metric([place], getattr(status.positions, place))
    yield places
    members = GaugeMetricFamily(f"{PREFIX}_members", "Connected members by role.", labels=["role"])
    for role in MemberRole:
        members.add_metric([role], sum(1 for m in status.members if m.role is role and m.is_connected))
    yield members
    servers = GaugeMetricFamily(f"{PREFIX}_servers", "Parameter servers: ready, wanted, and the most.", labels=["kind"])
    for kind, count in (("ready", status.servers), ("wanted", status.servers_wanted), ("max", status.servers_max)):
        servers.add_metric([kind], count)
    yield servers
    yield _gauge("moving_buckets", "Buckets on their way between servers.", status.moving)
    yield _gauge("buckets_waiting_to_move", "Buckets waiting to move.", status.waiting_to_move)
    yield _gauge("buckets_with_one_copy", "Buckets without the second copy that the job wants.", status.single_copies)
    yield _counter("reworked_positions", "Positions returned from done to todo in this term.", status.reworked)
    rate = sum(member.samples_per_s for member in status.members if member.is_connected)
    yield _gauge("samples_per_second", "Training rate of all trainers.", rate)
    yield _gauge("failures_in_a_row", "Script failures in a row without a completed batch.", status.failures_in_a_row)
    if status.checkpoint_age_s is not None:
        yield _gauge("checkpoint_age_seconds", "Seconds since the last commit.", status.checkpoint_age_s)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def serve_metrics(master: MetricsSource, listen: ListenAddress) -> Callable[[], None]:
    """Serves the metrics in a thread of its own; the answer is a function that stops it.  Raises PortInUseError."""
    registry = CollectorRegistry()
    registry.register(MasterCollector(master))
    page = CachedPage(lambda: Page(body=generate_latest(registry), kind=PROMETHEUS_TEXT))
    try:
        listening = listen_at(listen.host, listen.port)
    except OSError as error:
        raise PortInUseError(str(listen)) from error
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with serving(listening, {"/metrics": page}):
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()

    return stop
