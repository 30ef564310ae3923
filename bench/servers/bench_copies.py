"""Benchmark of two copies of each bucket: pushes with one copy and with two, and recovery from a killed server.

Real processes on one machine: a master, two servers, two trainers.  Rates are taken in turns of two jobs that stand
beside each other, one of which sleeps, so both see the same machine; what is compared is two turns in a row.  They are
taken on the loopback, where the processors bind, and with each process behind a link of 1 Gbit/s (`network_nodes`),
where a second copy takes room that the first one's pushes want.  After the SIGKILL a successor is started at once, as
in `bench_loss`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.reporting.result_rows import Row, print_rows
from bench.servers.measured_job import PROGRAM, WIDTH, Job, batch_ends, job
from bench.servers.network_nodes import BEHIND_LINKS, HERE, LINKS, Node, Nodes, run_behind_links

PUSHING: Final = PROGRAM.with_name("pushing.py")
KINDS: Final = {"dense": "1 MB of dense tables", "rows": "4,096 rows of 64"}
TURN_S: Final = 0.5
SETTLE_S: Final = 0.05  # until a turn's end is seen by the trainers of one job, and its begin by those of the other
TURNS: Final = 15
KILLS: Final = 3
SIZE: Final = 256 << 20
WORK_S: Final = 3.0


def main() -> None:
    if sys.argv[1:] == [BEHIND_LINKS]:
        with Nodes() as nodes:
            print_rows(asyncio.run(pushed(LINKS, nodes.add)))
        return
    why = run_behind_links("bench.servers.bench_copies")
    print_rows(asyncio.run(rows(why)))


async def rows(why: str) -> list[Row]:
    found = await pushed("loopback", lambda: HERE, why)
    killed = [await lose_one() for _ in range(KILLS)]
    return [*found, *saved(killed)]


# ---- what it costs --------------------------------------------------------------------------------------------------


async def pushed(where: str, new_node: Callable[[], Node], why: str = "") -> list[Row]:
    load = f"load of the machine before: {os.getloadavg()[0]:.1f}{why}"
    with TemporaryDirectory() as folder:
        turns = [Path(folder) / f"turn-{copies}" for copies in (1, 2)]
        async with pushing(1, turns[0], new_node) as one, pushing(2, turns[1], new_node) as two:
            await two.until(lambda p: p.single_copy_buckets == 0 and p.copies > 1, "two copies of all buckets")
            return [
                compared(f"{where}: {kind}", trainers, await take_turns(f"{word} {trainers}", (one, two), turns), load)
                for word, kind in KINDS.items()
                for trainers in (1, 2)
            ]


def pushing(copies: int, turn: Path, new_node: Callable[[], Node]) -> AbstractAsyncContextManager[Job]:
    """Nobody takes away what a trainer holds that waits for its turn: pushes of that would end at once."""
    return job(PUSHING, new_node, EDL_COPIES=str(copies), EDL_LEASE_FLOOR_S="3600", TURN=str(turn))


async def take_turns(turn: str, jobs: tuple[Job, Job], turns: list[Path]) -> list[tuple[float, float]]:
    """Pushes per second of each job, in each pair of turns."""
    spans: list[list[tuple[float, float]]] = [[], []]
    for number in range(TURNS + 1):
        order = (0, 1) if number % 2 else (1, 0)
        for which in order:
            give(turns[which], turn)
            await asyncio.sleep(SETTLE_S)
            begun_s = time.monotonic()
            await asyncio.sleep(TURN_S)
            spans[which].append((begun_s, time.monotonic()))
            turns[which].unlink()
            await asyncio.sleep(SETTLE_S)
    rates = []
    for running, taken in zip(jobs, spans, strict=True):
        ends = [end for file in running.times.iterdir() for end in batch_ends(file)]
        rates.append([sum(a <= end < b for end in ends) / (b - a) for a, b in taken[1:]])
    return list(zip(*rates, strict=True))


def give(place: Path, turn: str) -> None:
    """The file is there whole or not at all."""
    fresh = place.with_suffix(".fresh")
    fresh.write_text(turn)
    fresh.rename(place)


def compared(what: str, trainers: int, rates: list[tuple[float, float]], load: str) -> Row:
    """The goal is that of the issue."""
    one, two = (statistics.median(found) for found in zip(*rates, strict=True))
    ratios = sorted(b / a for a, b in rates)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs of turns"
    return Row(
        name=f"push rate with two copies / with one, {what}, {trainers} trainer{'s' * (trainers > 1)}",
        value=round(statistics.median(ratios), 2),
        unit="",
        goal=">= 0.6",
        note=f"{two:.0f} and {one:.0f} pushes/s; {spread}; {load}",
    )


# ---- what it saves --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Seconds from the SIGKILL of one of two servers; a trainer's second batch after it has needed all buckets."""

    service_s: float  # until every trainer has completed two batches
    whole_s: float  # until there are two copies of everything
    longest_wait_s: float  # of a trainer for a batch's end, until then


async def lose_one() -> Loss:
    async with job(EDL_COPIES="2", ROWS=str(SIZE // (4 * WIDTH))) as running:
        before = await running.until(lambda p: p.single_copy_buckets == 0 and not p.moving, "two copies of all buckets")
        await asyncio.sleep(WORK_S)
        killed_s = time.monotonic()
        running.kill_server(1)
        await running.until(lambda p: p.single_copy_buckets > 0, "the loss")
        after = await running.until(lambda p: p.single_copy_buckets == 0 and not p.moving, "two copies again")
        whole_s = time.monotonic()
        assert (after.lineage, after.reworked) == (before.lineage, before.reworked), "something was done again"
        await asyncio.sleep(WORK_S)
        times = [batch_ends(file) for file in running.times.iterdir()]
    return Loss(
        service_s=max([end for end in ends if end > killed_s][1] for ends in times) - killed_s,
        whole_s=whole_s - killed_s,
        longest_wait_s=max(b - a for ends in times for a, b in pairwise(ends) if killed_s <= b <= whole_s),
    )


def saved(killed: list[Loss]) -> list[Row]:
    """Medians; the goal is that of the issue."""

    def row(name: str, found: list[float], goal: str = "") -> Row:
        told = ", ".join(f"{one:.2f}" for one in found)
        title = f"server killed, two copies, 256 MB: {name}"
        return Row(name=title, value=round(statistics.median(found), 2), unit="s", goal=goal, note=told)

    return [
        row("to full service", [one.service_s for one in killed], "<= 2"),
        row("longest wait of a trainer", [one.longest_wait_s for one in killed]),
        row("until there are two copies again", [one.whole_s for one in killed]),
    ]


if __name__ == "__main__":
    main()
