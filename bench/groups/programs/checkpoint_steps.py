"""One rank of the benchmark of checkpoints: `checkpoint_steps.py MEGABYTES COPIES`, in the environment of a member.

The replica is so large, and is copied in shards; a step multiplies matrices and sums a megabyte.  After so many copies
the rank prints what its steps took, {"steps": [[seconds, kind], ...]}, kind being "copy", "writing" or "free",
"copied_s" and "memory_s" of each copy and of copying as many bytes otherwise, and "cpu_s" of each writing thread.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Final

import numpy as np

from trainer_sdk.errors import StepAborted
from trainer_sdk.group.array_cuts import cut_rows
from trainer_sdk.group.port import ArrayShape, CapturedShard, CapturedState
from trainer_sdk.session import open_session

ARRAYS: Final = 16
SIDE: Final = 320
PRODUCTS: Final = 12  # some 30 ms of one core
WRITER: Final = "edl-copy"


class LargeReplica:
    """Arrays of equal size, copied in shards."""

    layout = "large"

    def __init__(self, megabytes: int) -> None:
        rows = megabytes * 1024 // ARRAYS // 4
        self.arrays = {f"layer.{n}": np.random.default_rng(n).random((rows, 512)) for n in range(ARRAYS)}
        self.copied_s: list[float] = []

    def replica_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def capture(self) -> CapturedState:
        return CapturedState(arrays={name: array.copy() for name, array in self.arrays.items()})

    def capture_shard(self, shard: int, shards: int) -> CapturedShard:
        began_s = time.perf_counter()
        shapes = {name: ArrayShape(dtype=array.dtype.str, shape=array.shape) for name, array in self.arrays.items()}
        rows = cut_rows(shapes, shard, shards)
        pieces = {name: self.arrays[name][part.begin : part.end].copy() for name, part in rows.items()}
        self.copied_s.append(time.perf_counter() - began_s)
        return CapturedShard(
            shard=shard, shards=shards, arrays=shapes, rows=rows, pieces=pieces, meta="{}" * (shard == 0), dtypes={}
        )

    def restore(self, captured: CapturedState) -> None:
        for name, array in captured.arrays.items():
            self.arrays[name][...] = array


def main() -> None:
    megabytes, wanted = int(sys.argv[1]), int(sys.argv[2])
    replica = LargeReplica(megabytes)
    matrix, gradient = np.random.default_rng(1).random((SIDE, SIDE)), np.zeros(1 << 18, dtype=np.float32)
    times: list[tuple[float, str]] = []
    cpu_s: dict[int, float] = {}
    variables = {name: value for name, value in os.environ.items() if name.startswith("EDL_")}
    with open_session(variables) as session:
        session.replicate(replica)
        steps = session.group_steps("measured", size=1 << 16, epochs=100, global_batch=2, seed=1)
        ended_s, copies = 0.0, 0
        while steps.next_step() is not None:
            for _ in range(PRODUCTS):
                matrix = matrix @ matrix
                matrix /= matrix.max()
            try:
                steps.all_reduce(gradient)
            except StepAborted:
                continue
            if not steps.end_step():
                continue
            writing = _write_cpu_s()
            cpu_s |= writing
            has_copied = len(replica.copied_s) > copies
            kind = "copy" if has_copied else "writing" if writing else "free"
            copies, now_s = len(replica.copied_s), time.perf_counter()
            if steps.size == 2 and ended_s:
                times.append((now_s - ended_s, kind))
            ended_s = now_s
            if len(replica.copied_s) > wanted and not writing:
                print(json.dumps(_result(replica, times, cpu_s)), flush=True)
                return


def _write_cpu_s() -> dict[int, float]:
    """CPU time of the thread that writes a checkpoint, by its number; nothing when there is none."""
    return {
        thread.ident: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name == WRITER and thread.ident is not None
    }


def _result(replica: LargeReplica, times: list[tuple[float, str]], cpu_s: dict[int, float]) -> dict[str, Any]:
    half = [array[: len(array) // 2] for array in replica.arrays.values()]
    memory_s = []
    for _ in replica.copied_s:
        began_s = time.perf_counter()
        kept = [array.copy() for array in half]
        memory_s.append(time.perf_counter() - began_s)
        del kept
    return {"steps": times, "copied_s": replica.copied_s[1:], "memory_s": memory_s, "cpu_s": list(cpu_s.values())}


if __name__ == "__main__":
    main()
