"""Benchmark of a resize: 2 servers to 3 and back, with 1 GB of tables while trainers go on.

Real processes on one machine: a master, servers, two trainers (`measured_job`).  A stall is the time from one batch's
end to the next one's, of one trainer; a resize begins when the master has buckets to move and ends when none is left.
The link is a bare TCP connection between two processes, measured in the same run before the job starts.

Twice: with each process on a node of its own, behind a link of 1 Gbit/s (`network_nodes`); and all on the loopback,
whose link is memory that is copied: what is measured then is the processors' part.  The first needs leave to make
networks.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from autoscaler.jobs.progress import JobProgress
from bench.reporting.result_rows import Row, print_rows
from bench.servers.link_rate import link_bytes_per_s
from bench.servers.measured_job import BUCKETS, ROWS, WIDTH, Job, batch_ends, job
from bench.servers.network_nodes import BEHIND_LINKS, HERE, LINKS, Node, Nodes, run_behind_links

QUIET_S: Final = 12.0  # before a resize: what it is compared with; servers say every 10 s what their buckets weigh
BATCH_BYTES: Final = 4096 * (4 * WIDTH + 8) + 4 * 65_536  # of `programs/embedding`: rows with their ids, and `w`


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Monotonic instants, and how many buckets changed their server."""

    quiet_from_s: float
    begun_s: float
    ended_s: float
    moved: int


def main() -> None:
    if sys.argv[1:] == [BEHIND_LINKS]:
        with Nodes() as nodes:
            print_rows(asyncio.run(rows(LINKS, nodes.add, 64 << 20)))
        return
    why = run_behind_links("bench.servers.bench_resize")
    print_rows(asyncio.run(rows("loopback", lambda: HERE, 256 << 20, why)))


async def rows(where: str, new_node: Callable[[], Node], probe_bytes: int, why: str = "") -> list[Row]:
    link = link_bytes_per_s(probe_bytes, new_node(), new_node())
    load = f"two trainers, {BATCH_BYTES / 1e6:.1f} MB each way a batch; load before: {os.getloadavg()[0]:.1f}{why}"
    found = [Row(name=f"{where}: a bare socket between two processes", value=round(link / 1e6), unit="MB/s", note=load)]
    async with job(new_node=new_node) as running:
        grown = await resize(running, 3)
        shrunk = await resize(running, 2)
        await asyncio.sleep(1.0)
        times = [batch_ends(file) for file in running.times.iterdir()]
    for name, one in (("2 -> 3", grown), ("3 -> 2", shrunk)):
        found += judged(f"{where}: resize {name}, 1 GB under load", one, times, link)
    return found


async def resize(running: Job, count: int) -> Resize:
    """To so many servers, after a while of quiet."""
    quiet_from_s = time.monotonic()
    await asyncio.sleep(QUIET_S)
    before = await running.until(lambda _: True, "the master answers")
    await running.set_servers(count)
    if count > before.servers:
        running.server(count - 1)
    await running.until(lambda p: p.moving > 0, "buckets move")
    begun_s = time.monotonic()
    after = await running.until(lambda p: not p.moving and owners(p) == count, "nothing moves")
    ended_s = time.monotonic()
    return Resize(quiet_from_s=quiet_from_s, begun_s=begun_s, ended_s=ended_s, moved=moved(before, after))


def owners(progress: JobProgress) -> int:
    return sum(1 for _, count in progress.buckets if count)


def moved(before: JobProgress, after: JobProgress) -> int:
    """Buckets that servers have more of than before."""
    had = dict(before.buckets)
    return sum(max(0, count - had.get(ordinal, 0)) for ordinal, count in after.buckets)


def judged(name: str, one: Resize, times: list[list[float]], link: float) -> list[Row]:
    """The goals are those of the issue: at most one batch + 100 ms, 1.5 times the bytes' own time, 70 %."""
    quiet = [b - a for ends in times for a, b in pairwise(ends) if one.quiet_from_s <= a and b <= one.begun_s - 0.5]
    batch_s = statistics.median(quiet)
    stalls = [b - a for ends in times for a, b in pairwise(ends) if b >= one.begun_s and a <= one.ended_s]
    took_s = one.ended_s - one.begun_s
    size = one.moved * ROWS * WIDTH * 4 / BUCKETS
    before = _rate(times, one.quiet_from_s, one.begun_s - 0.5)
    during = _rate(times, one.begun_s, one.ended_s)
    told = f"{one.moved} buckets, {size / 1e6:.0f} MB in {took_s:.2f} s"
    return [
        Row(
            name=f"{name}: longest stall beyond one batch",
            value=round((max(stalls) - batch_s) * 1e3),
            unit="ms",
            goal="<= 100",
            note=f"a batch takes {batch_s * 1e3:.0f} ms; longest without a move {max(quiet) * 1e3:.0f} ms",
        ),
        Row(
            name=f"{name}: time / the bytes' own on the link",
            value=round(took_s * link / size, 2),
            unit="",
            goal="<= 1.5",
            note=told,
        ),
        Row(
            name=f"{name}: throughput during / before",
            value=round(during / before, 2),
            unit="",
            goal=">= 0.7",
            note=f"{before:.0f} and {during:.0f} batches/s",
        ),
    ]


def _rate(times: list[list[float]], from_s: float, to_s: float) -> float:
    return sum(from_s <= end < to_s for ends in times for end in ends) / (to_s - from_s)


if __name__ == "__main__":
    main()
