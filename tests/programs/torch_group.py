"""A torch script in a group, under a real master: `torch_group.py FOLDER MASTER ORDINAL`.

FOLDER as for `group_counter.py`: `sockets`, `checkpoints`, `hurry`; the result is NAME.json there.  With the file
`stream` the records are those of an IterableDataset, whose epochs each have an order of their own; with `unsteady` they
are other ones at each trainer.  A parameter of the model counts how often each record was trained: its gradient is
minus one by the records of the step.

With the file `enough` training ends after the epoch in which every record has been trained so often as it says; with
`stop-ORDINAL` this trainer alone ends it, with the next step.  With `rate-by-rank` each trainer has a rate of its own;
with `bend-ORDINAL` this one changes a weight by hand, once, and the file says after which step.  `hook` as there.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

import trainer_sdk.torch as edl_torch
from tests.programs.group_counter import DATASET, pause, run_hook, variables_of
from trainer_sdk.session import open_session


class Records(torch.utils.data.Dataset):
    """Record i: its number and a vector of it."""

    def __len__(self) -> int:
        return DATASET.size

    def __getitem__(self, record: int) -> tuple[torch.Tensor, int]:
        return torch.randn(4, generator=torch.Generator().manual_seed(record)), record


class Unsteady(Records):
    """Records that depend on who reads them."""

    def __getitem__(self, record: int) -> tuple[torch.Tensor, int]:
        x, number = super().__getitem__(record)
        return x + 1e-6 * os.getpid(), number


class Stream(torch.utils.data.IterableDataset[tuple[torch.Tensor, int]]):
    """The same records, in a random order, read one after the other."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for record in torch.randperm(DATASET.size).tolist():
            yield Records()[record]


class Counting(torch.nn.Module):
    """A network with batch normalisation beside the counts."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.network = nn.Sequential(  # two values a channel: the last step of an epoch has one record
            nn.Linear(4, 16), nn.Unflatten(1, (8, 2)), nn.BatchNorm1d(8), nn.Flatten(), nn.Linear(16, 1)
        )
        self.counts = torch.nn.Parameter(torch.zeros(DATASET.size, dtype=torch.float64))

    def forward(self, x: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        return self.network(x).pow(2).sum(dim=1) * 1e-3 - self.counts[records]


def has_enough(folder: Path, trained: float) -> bool:
    """What all trainers find alike, from numbers that they share."""
    return (folder / "enough").exists() and trained >= float((folder / "enough").read_text()) * DATASET.size


def fail_if_asked(folder: Path, ordinal: int) -> None:
    """In the middle of a step, once a file asks for it: an allocation that no machine can serve."""
    file = folder / f"out-of-memory-{ordinal}"
    if file.exists():
        file.unlink()
        torch.empty(1 << 60, dtype=torch.uint8)


def bend_if_asked(folder: Path, ordinal: int, model: Counting, step: int) -> None:
    """Once a file asks for it: a weight that is another one at this trainer alone."""
    file = folder / f"bend-{ordinal}"
    if file.exists():
        file.rename(folder / "bent").write_text(str(step))
        with torch.no_grad():
            model.network[0].weight[0, 0] += 0.5


def main(folder: Path, master: str, ordinal: int) -> None:
    torch.set_num_threads(1)
    is_stream = (folder / "stream").exists()
    model = Counting()
    network = {"params": model.network.parameters(), "lr": 0.01, "momentum": 0.9}
    optimizer = torch.optim.SGD([network, {"params": [model.counts], "lr": float(DATASET.batch_size)}])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step: 0.999**step, lambda step: 1.0])
    with open_session(variables_of(folder, master, ordinal)) as session:
        edl_torch.replicate(session, model, optimizer, schedule)
        if (folder / "hook").exists():
            session.on_final(lambda _: run_hook(folder, ordinal))
        loader = edl_torch.loader(
            session,
            Stream() if is_stream else Unsteady() if (folder / "unsteady").exists() else Records(),
            size=DATASET.size if is_stream else None,
            epochs=DATASET.epochs,
            global_batch=DATASET.batch_size,
            micro_batch=4,
            seed=DATASET.seed,
            name=DATASET.name,
        )
        evaluated = []
        for _ in loader.epochs():
            for x, records in loader:
                pause(folder, loader.step)
                fail_if_asked(folder, ordinal)
                loader.backward(model(x, records).mean())
                if loader.has_stepped:  # its rate is a whole batch, and the last step of an epoch has less
                    is_last = loader.step % len(loader) == 0
                    model.counts.grad *= DATASET.size % DATASET.batch_size / DATASET.batch_size if is_last else 1
                    if (folder / "rate-by-rank").exists():
                        model.network[0].weight.grad *= 1 + session.rank
                    bend_if_asked(folder, ordinal, model, loader.step)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                if loader.has_stepped and (folder / f"stop-{ordinal}").exists():
                    loader.stop()
            found = loader.evaluate(
                Records(), lambda batch: {"n": len(batch[1]), "trained": model.counts[batch[1]].round().sum()}
            )
            evaluated.append(found["n"])
            if has_enough(folder, found["trained"]):
                loader.stop()
        result = {
            "reason": "ended" if session.has_ended else "drained",
            "counts": model.counts.detach().round().long().tolist(),
            "weights": model.network[0].weight.detach().numpy().tobytes().hex(),
            "buffers": [value.tolist() for value in model.buffers()],
            "step": session.step,
            "redone": 0,
            "evaluated": sorted(set(evaluated)),
            "advanced": schedule.last_epoch,
        }
        (folder / f"trainer-{ordinal}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
