"""One rank of the benchmark of torch steps: the same model by EDL and by a plain loop (DDP for several ranks).

Arguments: folder, rank, ranks, parameters (millions), data ("tensors", a TensorDataset, or "records", a data set of the
script's own).  Both arms run in this process in turns, a round of steps each.
Rank 0 prints {"edl": [seconds of a step], "plain": [...]}, one entry a round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainer_sdk.torch as edl_torch
from trainer_sdk.session import open_session

ROUNDS: Final = 12
ROUNDS_ALONE: Final = 60  # steps of one rank are short, and a round of them is at the mercy of one other process
STEPS: Final = 10
LOCAL_BATCH: Final = 64
INPUTS: Final = 256


class Records:
    """What most scripts write: a record at a time, from memory."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, record: int) -> Any:
        return self.x[record], self.y[record]


def make_model(millions: float) -> Any:
    """Four layers, so that gradients of the last come while those of the first are computed."""
    torch.manual_seed(1)
    width = int((millions * 1e6 / 3) ** 0.5)
    layers = [nn.Linear(INPUTS, width), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def main() -> None:
    folder, rank, ranks, millions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    records = 20_000
    kind: Any = Records if sys.argv[5] == "records" else TensorDataset
    data = kind(torch.randn(records, INPUTS), torch.randint(10, (records,)))
    variables = {name: value for name, value in os.environ.items() if name.startswith("EDL_")}
    model = make_model(millions)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    with open_session(variables) as session:
        model, optimizer = edl_torch.replicate(session, model, optimizer)
        loader = edl_torch.loader(session, data, epochs=10_000, global_batch=LOCAL_BATCH * ranks, seed=3)
        own = edl_steps(loader, model, optimizer)
        next(own)
        while session.world_size < ranks:
            next(own)
        plain = plain_steps(folder, rank, ranks, data, make_model(millions))
        times: dict[str, list[float]] = {"edl": [], "plain": []}
        for number in range((ROUNDS_ALONE if ranks == 1 else ROUNDS) + 2):
            arms = [("edl", lambda: next(own)), ("plain", lambda: next(plain))]
            for name, step in arms if number % 2 else reversed(arms):
                took_s = measure(step)
                if number > 1:  # the first rounds warm up
                    times[name].append(took_s)
        if rank == 0:
            print(json.dumps(times), flush=True)
        while ranks > 1:  # until all have measured, and this rank is killed
            next(own)


def edl_steps(loader: Any, model: Any, optimizer: Any) -> Iterator[None]:
    for x, y in loader:
        loader.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        if loader.has_stepped:
            yield


def plain_steps(folder: Path, rank: int, ranks: int, data: Any, model: Any) -> Iterator[None]:
    sampler = None
    if ranks > 1:
        store = torch.distributed.FileStore(str(folder / "store"), ranks)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        sampler = DistributedSampler(data, ranks, rank)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    while True:
        for x, y in DataLoader(data, LOCAL_BATCH, sampler=sampler, shuffle=sampler is None, drop_last=True):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def measure(step: Callable[[], None]) -> float:
    """Seconds of one step; ranks wait for each other in the steps themselves."""
    step()
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begun) / STEPS


if __name__ == "__main__":
    main()
