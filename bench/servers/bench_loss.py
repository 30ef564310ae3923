"""Benchmark of a lost server: 256 MB of tables on 2 servers, one killed between checkpoints, both policies in turns.

Real processes on one machine, all on the loopback.  A successor is started at once.  Times count from the SIGKILL: to
full service, when the master serves and both servers hold their share; and until as much is done as was before.  What
is trained again in between is counted in batches that trainers computed.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass
from typing import Final

from bench.reporting.result_rows import Row, print_rows
from bench.servers.measured_job import WIDTH, Job, batch_ends, job
from master.api.master_status import JobPhase

SIZE: Final = 256 << 20
ROUNDS: Final = 3
POLICIES: Final = ("RollBack", "Keep")
EVERY_S: Final = 12.0  # between checkpoints
WORK_S: Final = 6.0  # of it, when the server is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """In seconds and batches since the kill; `lost`: batches done since the checkpoint before it."""

    service_s: float
    caught_up_s: float
    stall_s: float
    lost: int
    again: int


def main() -> None:
    print_rows(asyncio.run(rows()))


async def rows() -> list[Row]:
    found: dict[str, list[Loss]] = {policy: [] for policy in POLICIES}
    load = f"load of the machine before: {os.getloadavg()[0]:.1f}"
    for _ in range(ROUNDS):
        for policy in POLICIES:
            found[policy].append(await lose_one(policy))
    return [row for policy in POLICIES for row in judged(policy, found[policy], load)]


async def lose_one(policy: str) -> Loss:
    settings = {
        "EDL_AFTER_LOSS": policy,
        "EDL_CHECKPOINT_EVERY_S": f"{EVERY_S:g}",
        "ROWS": str(SIZE // (4 * WIDTH)),
    }
    async with job(**settings) as running:
        return await measured(running)


async def measured(running: Job) -> Loss:
    head = (await running.until(lambda _: True, "the master answers")).head
    await running.until(lambda p: p.head not in ("", head), "a checkpoint of all rows")
    head = (await running.until(lambda _: True, "the master answers")).head
    await running.until(lambda p: p.head != head, "another one")
    await asyncio.sleep(WORK_S)
    before = await running.until(lambda p: p.phase is JobPhase.TRAINING, "work beyond a checkpoint")
    killed_s = time.monotonic()
    running.kill_server(1)
    await running.until(
        lambda p: p.lineage > before.lineage and p.servers == p.servers_wanted and p.phase is JobPhase.TRAINING,
        "full service",
    )
    served_s = time.monotonic()
    await running.until(lambda p: p.done >= before.done, "as much is done as before")
    caught_up_s = time.monotonic()
    await asyncio.sleep(1.0)
    times = [batch_ends(file) for file in running.times.iterdir()]
    stalls = [min((end for end in ends if end > served_s), default=caught_up_s) - killed_s for ends in times]
    return Loss(
        service_s=served_s - killed_s,
        caught_up_s=caught_up_s - killed_s,
        stall_s=max(stalls),
        lost=(before.done - before.committed) // 32,
        again=sum(served_s <= end < caught_up_s for ends in times for end in ends),
    )


def judged(policy: str, found: list[Loss], load: str) -> list[Row]:
    """Medians; the issue names no goal for a server without replicas."""

    def median(name: str) -> float:
        return statistics.median(getattr(one, name) for one in found)

    services = ", ".join(f"{one.service_s:.2f}" for one in found)
    ups = ", ".join(f"{one.caught_up_s:.2f}" for one in found)
    told = f"server killed, {policy}"
    return [
        Row(name=f"{told}: to full service", value=round(median("service_s"), 2), unit="s", note=f"{services}; {load}"),
        Row(name=f"{told}: longest wait of a trainer", value=round(median("stall_s"), 2), unit="s"),
        Row(name=f"{told}: until as much is done", value=round(median("caught_up_s"), 2), unit="s", note=ups),
        Row(
            name=f"{told}: batches trained again / done since the checkpoint",
            value=round(statistics.median(one.again / max(1, one.lost) for one in found), 2),
            unit="",
            note=", ".join(f"{one.again}/{one.lost}" for one in found),
        ),
    ]


if __name__ == "__main__":
    main()
