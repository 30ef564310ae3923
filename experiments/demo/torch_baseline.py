"""Baseline of the demo's torch group: its model trained by plain PyTorch, in one process without EDL.

    python -m experiments.demo.torch_baseline DATA SEED EPOCHS [MODEL]

It prints the test accuracy of that training and, a line below, that of the group's own MODEL.  A process of its own
keeps torch, and the seconds of its import, out of the demo's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch.nn import functional as F  # noqa: N812  as scripts write it

from experiments.demo.baseline import EXAMPLES, load_example

GLOBAL_BATCH: Final = 64
LEARNING_RATE: Final = 0.01
"""Both as the script's defaults."""


def train_alone(script: ModuleType, train_set: Any, *, seed: int, epochs: int) -> Any:
    """The model after these epochs, in the step, the schedule and the global batch of the group."""
    torch.manual_seed(seed)
    model = script.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    batches = torch.utils.data.DataLoader(train_set, batch_size=GLOBAL_BATCH, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * len(batches))
    for _ in range(epochs):
        for x, y in batches:
            F.cross_entropy(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return model


def measure_accuracy(model: Any, test_set: Any) -> float:
    """Share of the test digits that the model classifies correctly."""
    x, y = test_set.tensors
    with torch.no_grad():
        return float((model.eval()(x).argmax(dim=1) == y).float().mean())


def main() -> None:
    data, seed, epochs, *models = sys.argv[1:]
    torch.set_num_threads(1)
    script = load_example(EXAMPLES / "digits_torch.py")
    train_set, test_set = script.load(Path(data))
    print(measure_accuracy(train_alone(script, train_set, seed=int(seed), epochs=int(epochs)), test_set), flush=True)
    for path in models:
        model = script.make_model()
        model.load_state_dict(torch.load(path, weights_only=True))
        print(measure_accuracy(model, test_set), flush=True)


if __name__ == "__main__":
    main()
