"""A worker of torchrun as its guide shows one: DDP on gloo; it notes the time of each step in FOLDER/PID.steps."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(1000, 1000))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with (folder / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        while True:
            model(torch.randn(8, 1000)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)
            steps.write(f"{time.time()}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
