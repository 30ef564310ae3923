"""Benchmark of dispatch: shards leased and acked through a real master on a real etcd, clients on the same cores.

Closed loop: as fast as the answers come, a table over trainers and shards a message.  Open loop: 5,000 shards a second
on a schedule, latency from the scheduled send time, median of five runs.  Beside the latency, which falls and rises
with whatever else runs on these cores, stands the CPU time of the master a shard, which does so far less.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from autoscaler.etcd_server.etcd_members import start_etcd
from autoscaler.etcd_server.finder import find_etcd
from bench.master.shard_clients import WARM_UP_S
from bench.reporting.result_rows import Row, print_rows

MAX_PROCESSES = 16
CLOSED_S, OPEN_S = 2.0, 4.0
OPEN_RATE = 5_000
DEADLINE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    cycles_per_s: float
    p50_ms: float
    p99_ms: float
    master_us: float  # CPU time of the master a shard, user and system


@contextlib.asynccontextmanager
async def master(job: str, folder: Path) -> AsyncIterator[tuple[str, int]]:
    """A master of a job without servers, on an etcd of one member; yields its address and process id."""
    binary = find_etcd(allow_demo_version=False, environ=os.environ, report=lambda _: None)
    async with start_etcd(binary, folder / "etcd") as etcd:
        address_file = folder / "address"
        env = os.environ | {
            "EDL_ENV_VERSION": "1", "EDL_JOB": job, "EDL_ROLE": "master", "EDL_NAME": f"{job}-master-0",
            "EDL_ORDINAL": "0", "EDL_LISTEN": "127.0.0.1:0", "EDL_ADDRESS_FILE": str(address_file),
            "EDL_ETCD_ENDPOINTS": ",".join(etcd.endpoints), "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
            "EDL_CHECKPOINT_EVERY_S": "5", "EDL_SERVERS": "0", "EDL_METRICS_LISTEN": "127.0.0.1:0",
        }  # fmt: skip
        with (folder / "master.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "master", env=env, stderr=log, stdout=log
            )
        try:
            for _ in range(DEADLINE_S * 20):
                if address_file.exists() or process.returncode is not None:
                    break
                await asyncio.sleep(0.05)
            if not address_file.exists():
                raise SystemExit(f"the master did not come up:\n{(folder / 'master.log').read_text()[-2000:]}")
            yield address_file.read_text().strip(), process.pid
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), DEADLINE_S)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drive(
    master_at: tuple[str, int], job: str, *, trainers: int, shards: int, seconds: float, rate: float = 0.0
) -> Outcome:
    """Run `trainers` streams from at most 16 processes; `rate`: shards a second over all of them, 0 for closed loop."""
    address, pid = master_at
    processes = min(trainers, MAX_PROCESSES)
    each = trainers // processes
    messages_per_s = rate / shards / trainers
    crew = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.master.shard_clients", address, job),
                *map(str, (k * each, each, shards, seconds, messages_per_s)),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for k in range(processes)
    ]  # fmt: skip
    try:
        for process in crew:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("a client process did not come up")
        begun_s = cpu_s(pid)
        for process in crew:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        results = [json.loads(process.communicate(timeout=DEADLINE_S + seconds)[0]) for process in crew]
        used_s = cpu_s(pid) - begun_s
    finally:
        for process in crew:
            process.kill()
            process.wait()
    latencies = sorted(ms for result in results for ms in result["latencies_ms"])
    cycles_per_s = sum(result["cycles"] for result in results) / seconds
    return Outcome(
        cycles_per_s=cycles_per_s,
        master_us=1e6 * used_s / (cycles_per_s * (WARM_UP_S + seconds)),
        p50_ms=latencies[len(latencies) // 2],
        p99_ms=latencies[len(latencies) * 99 // 100],
    )


def closed_rows(master_at: tuple[str, int], job: str) -> Iterator[Row]:
    best = 0.0
    for trainers in (1, 16, 64):
        for shards in (1, 4, 8):
            seen = drive(master_at, job, trainers=trainers, shards=shards, seconds=CLOSED_S)
            best = max(best, seen.cycles_per_s)
            name = f"closed loop, {trainers} trainers, {shards} shards a message"
            note = f"p50 {seen.p50_ms:.2f} ms, p99 {seen.p99_ms:.2f} ms, master {seen.master_us:.0f} us CPU a shard"
            yield Row(name=name, value=seen.cycles_per_s, unit="shards/s", note=note)
    yield Row(name="closed loop, the most", value=best, unit="shards/s")


def open_rows(master_at: tuple[str, int], job: str) -> Iterator[Row]:
    for trainers in (16, 64):
        for shards in (4, 8):
            runs = [
                drive(master_at, job, trainers=trainers, shards=shards, seconds=OPEN_S, rate=OPEN_RATE)
                for _ in range(5)
            ]
            p99 = statistics.median(run.p99_ms for run in runs)
            rate = statistics.median(run.cycles_per_s for run in runs)
            name = f"open loop 5,000/s, {trainers} trainers, {shards} shards a message: p99"
            p50, cpu = (statistics.median(each) for each in zip(*((r.p50_ms, r.master_us) for r in runs), strict=True))
            note = f"{rate:.0f} shards/s, p50 {p50:.2f} ms, master {cpu:.0f} us CPU a shard"
            yield Row(name=name, value=p99, unit="ms", goal="<= 10", note=note)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as name:
        async with master("bench", Path(name)) as master_at:
            for rows in (closed_rows, open_rows):
                for row in rows(master_at, "bench"):
                    print_rows([row])


if __name__ == "__main__":
    asyncio.run(main())
