"""Groups on this machine's GPUs, in five minutes, with the figures in a JSON file.

    python -m tests.gpu [FILE] [--without-gpu]

1. The tests of groups on the GPU: gradients, buffers, states, aborts, joins (`test_accelerator.py`).
2. Two processes train a compiled CNN in float16 with a gradient scaler, on a GPU each or both on the only one; one is
   killed, another joins; every record counts exactly, and replicas are the same bits (`test_gpu_group.py`).
3. Copies between GPU and pinned host memory, and of a whole replica, in GB/s.

FILE is `gpu-figures.json` if not named.  Exit code 0: all held.  `--without-gpu` tries the script itself on the CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import trainer_sdk.torch as edl_torch
from trainer_sdk.torch.host_staging import HostStaging
from trainer_sdk.torch.replica_state import TorchReplica

SIZE = 1 << 28
"""Bytes that are copied."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("file", nargs="?", type=Path, default=Path("gpu-figures.json"))
    parser.add_argument("--without-gpu", action="store_true")
    options = parser.parse_args()
    device = edl_torch.device()
    if device.type == "cpu" and not options.without_gpu:
        print("no GPU here: torch finds none (--without-gpu tries the script on the CPU)", file=sys.stderr)
        return 2
    figures: dict[str, object] = {"torch": torch.__version__, "device": str(device)}
    if device.type == "cuda":
        figures |= {"gpu": torch.cuda.get_device_name(device), "gpus": torch.cuda.device_count()}
    chosen = ["tests/gpu/test_gpu_group.py"]
    if device.type != "cpu":
        figures["copies"] = measure_copies(device)
        chosen.append("tests/unit/trainer_sdk/torch/test_accelerator.py")
    group = options.file.with_suffix(".group.json")
    began_s = time.monotonic()
    variables = os.environ | {"EDL_GPU_GROUP": str(group.resolve())}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *chosen], env=variables, check=False
    )
    figures |= {"passed": done.returncode == 0, "tests_s": round(time.monotonic() - began_s, 1)}
    if group.exists():
        figures["group"] = json.loads(group.read_text())
        group.unlink()
    options.file.write_text(json.dumps(figures, indent=2) + "\n")
    print(options.file.read_text())
    return done.returncode


def measure_copies(device: torch.device) -> dict[str, float]:
    """GB/s of the ways that gradients and replicas take."""
    staging = HostStaging(device)
    flat = torch.ones(SIZE // 4, device=device)
    host = staging.pinned(flat)
    replica = TorchReplica({"model": torch.nn.Linear(SIZE // 4 // 1024, 1024, bias=False).to(device)})
    captured = replica.capture()

    def rate(copy) -> float:
        copy()
        staging.check()
        began_s = time.perf_counter()
        for _ in range(4):
            copy()
        staging.check()
        return round(4 * SIZE / (time.perf_counter() - began_s) / 1e9, 2)

    return {
        "gradients_to_host": rate(lambda: staging.to_host(host, flat, {staging.current_stream()})),
        "gradients_to_device": rate(lambda: staging.to_device(flat, host)),
        "replica_captured": rate(replica.capture),
        "replica_restored": rate(lambda: replica.restore(captured)),
    }


if __name__ == "__main__":
    sys.exit(main())
