"""One rank of the benchmark of all-reduces: the same sizes by EDL's collective and by gloo, in turns.

Arguments: folder, rank, size, authority (a folder of TLS files, or "-"), gloo (yes or no).  Rank 0 prints one JSON
object a size: {"bytes", "edl": [seconds], "gloo": [seconds]}, one entry a round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainer_sdk.collective import CollectiveListener, HostCollective, Peer
from trainer_sdk.transport.security import Security

SIZES: Final = {4 << 10: (40, 20), 256 << 10: (25, 8), 4_000_000: (15, 4), 40_000_000: (9, 1)}
"""Bytes of float32: rounds, and calls in each."""

START_S: Final = 180.0


def main() -> None:
    folder, rank, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    security = Security(tls_folder=None if sys.argv[4] == "-" else Path(sys.argv[4]), token=b"bench")
    listener = CollectiveListener("127.0.0.1:0", security, f"rank-{rank}")
    group = listener.connect(
        key="bench", rank=rank, members=meet(folder, rank, size, listener.address), budget_s=START_S
    )
    gloo = open_gloo(folder, rank, size) if sys.argv[5] == "yes" else None
    for nbytes, (rounds, calls) in SIZES.items():
        times: dict[str, list[float]] = {"edl": [], "gloo": []}
        for number in range(rounds + 1):
            arms: list[tuple[str, Callable[[Any], None]]] = [("edl", group.all_reduce)]
            if gloo is not None:
                arms.append(("gloo", gloo))
            for name, reduce in arms if number % 2 else reversed(arms):
                took_s = measure(group, reduce, nbytes, calls)
                if number:  # the first round warms up
                    times[name].append(took_s)
        if rank == 0:
            print(json.dumps({"bytes": nbytes, **times}), flush=True)
    group.close()
    listener.close()


def measure(group: HostCollective, reduce: Callable[[Any], None], nbytes: int, calls: int) -> float:
    """Seconds of one call, all ranks beginning together."""
    array = np.ones(nbytes // 4, dtype=np.float32)
    group.barrier()
    begun = time.perf_counter()
    for _ in range(calls):
        reduce(array)
    group.barrier()
    return (time.perf_counter() - begun) / calls


def meet(folder: Path, rank: int, size: int, address: str) -> list[Peer]:
    """All members, once each has written where it listens."""
    fresh = folder / f"fresh-{rank}"
    fresh.write_text(address)
    fresh.rename(folder / f"address-{rank}")
    files = [folder / f"address-{number}" for number in range(size)]
    deadline_s = time.monotonic() + START_S
    while not all(file.exists() for file in files):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"rank {rank} is without the others")
        time.sleep(0.02)
    return [Peer(f"rank-{number}", file.read_text()) for number, file in enumerate(files)]


def open_gloo(folder: Path, rank: int, size: int) -> Callable[[Any], None]:
    """torch.distributed's all-reduce of an array, in place."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
    return lambda array: dist.all_reduce(torch.from_numpy(array)) and None


if __name__ == "__main__":
    main()
