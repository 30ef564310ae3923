"""Benchmark of the SDK's cost to a training loop: per batch without a due call, and from a session to its first batch.

The master is a real process on the same machine.  A batch is `next(data)` and `Batch.done` of 32 records; the median
of many is one with no call due, since a lease holds thousands.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep

from bench.reporting.result_rows import Row, print_rows
from trainer_sdk.session import open_session

BATCHES = 50_000
STARTS = 7
START_LIMIT_S = 30.0

FIRST_BATCH = """
import time
import trainer_sdk as edl
begun = time.perf_counter()
with edl.open() as session:
    data = session.dataset("bench", size=10_000_000, epochs=2, batch_size=32)
    next(data).done()
    print(time.perf_counter() - begun)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_master(Path(folder)) as variables:
        starts_s = [first_batch_s(variables) for _ in range(STARTS)]
        costs_us = batch_costs_us(variables)
    print_rows(
        [
            Row(
                name="SDK: a batch with no call due, median", value=statistics.median(costs_us), unit="us", goal="<= 20"
            ),
            Row(
                name="SDK: a batch, mean with all calls",
                value=statistics.mean(costs_us),
                unit="us",
                note="leases fetched, acks sent and records permuted included",
            ),
            Row(name="SDK: open to first batch, median", value=statistics.median(starts_s), unit="s", goal="<= 2"),
            Row(name="SDK: open to first batch, longest", value=max(starts_s), unit="s", goal="<= 2"),
        ]
    )


def batch_costs_us(variables: dict[str, str]) -> list[float]:
    """Of each batch the time in the SDK, training apart (there is none)."""
    costs_us = []
    with open_session(variables) as session:
        data = session.dataset("bench", size=10_000_000, epochs=2, batch_size=32)
        for _ in range(BATCHES):
            begun = perf_counter()
            next(data).done()
            costs_us.append(1e6 * (perf_counter() - begun))
    return costs_us[BATCHES // 10 :]


def first_batch_s(variables: dict[str, str]) -> float:
    """In a process of its own, interpreter start and imports of the script apart."""
    command = [sys.executable, "-c", FIRST_BATCH]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
    return float(done.stdout)


@contextmanager
def running_master(folder: Path) -> Iterator[dict[str, str]]:
    """A master with the memory store; the environment of its trainers."""
    address_file = folder / "address"
    common = {"EDL_JOB": "bench", "EDL_CHECKPOINT_URI": str(folder / "checkpoints")}
    own = {"EDL_ADDRESS_FILE": str(address_file), "EDL_ETCD_ENDPOINTS": "", "EDL_LISTEN": "127.0.0.1:0"}
    with subprocess.Popen([sys.executable, "-m", "master"], env=os.environ | common | own) as process:
        try:
            deadline_s = monotonic() + START_LIMIT_S
            while not address_file.exists():
                if monotonic() > deadline_s or process.poll() is not None:
                    raise RuntimeError("the master did not start")
                sleep(0.02)
            yield common | {"EDL_MASTER": address_file.read_text().strip()}
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
