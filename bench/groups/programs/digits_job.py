"""The job that `bench_exactness` gives to each system: the digits, and what each script notes while it trains them.

A script's model has counters beside it: how often each record was trained in each epoch.  They travel with the model,
so at the end they tell what is in it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

RECORDS: Final = 1437
EPOCHS: Final = 3
LOCAL_BATCH: Final = 32
PAUSE_S: Final = 0.1
"""A step takes so much longer, so that changes fall into the middle of epochs."""
HOLD_S: Final = 300.0
DIGITS: Final = Path(__file__).parents[3] / "examples" / "digits.npz"


def numbered_digits() -> TensorDataset:
    """Pixels, class and number of each record."""
    with np.load(DIGITS) as archive:
        x, y = archive["x_train"], archive["y_train"]
    pixels = torch.from_numpy((x / 16).astype(np.float32)).reshape(-1, 64)
    assert len(pixels) == RECORDS
    return TensorDataset(pixels, torch.from_numpy(y.astype(np.int64)), torch.arange(RECORDS))


def make_model() -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def counted(epoch: int, records: torch.Tensor) -> torch.Tensor:
    """One for each of these records in this epoch, flat."""
    counts = torch.zeros(EPOCHS * RECORDS)
    return counts.index_add_(0, epoch * RECORDS + records, torch.ones(len(records)))


def note_step(folder: Path, epoch: int, step: int, processes: int) -> None:
    """This step of the epoch is done; steps are counted from 1.  A line has the time too (monotonic, s)."""
    with (folder / "progress").open("a") as file:
        file.write(f"{epoch} {step} {processes} {time.monotonic()}\n")
    time.sleep(PAUSE_S)


def save_counts(folder: Path, counts: torch.Tensor) -> None:
    """The result: whole, or not there."""
    part = folder / "counts.part.npy"
    np.save(part, counts.reshape(EPOCHS, RECORDS).round().long().numpy())
    part.replace(folder / "counts.npy")


def wait_to_begin(folder: Path, name: str, waits: str) -> None:
    """Says by the file `ready-NAME` that all is imported, and waits for the file `waits`.  Raises TimeoutError."""
    (folder / f"ready-{name}").touch()
    wait_for(folder / waits)


def wait_for(file: Path) -> None:
    """Until the benchmark makes this file.  Raises TimeoutError."""
    deadline_s = time.monotonic() + HOLD_S
    while not file.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{file.name} did not come")
        time.sleep(0.05)
