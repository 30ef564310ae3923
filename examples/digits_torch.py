"""Handwritten digits in PyTorch: a small CNN with batch normalisation and a schedule, by any number of trainers.

    python examples/digits_torch.py                            alone
    edl launch --trainers 1:4 examples/digits_torch.py         in a group that gives way and grows, on this machine

Each line that a plain script has not is marked `edl`.  Every trainer holds the model: kill one, and the others go on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it
from torch.utils.data import TensorDataset

import trainer_sdk as edl
import trainer_sdk.torch as edl_torch

DIGITS = Path(__file__).with_name("digits.npz")


def make_model() -> nn.Module:
    """Two convolutions for 8 by 8 pixels, each with batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    train_set, test_set = load(options.data)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    steps = options.epochs * -(-len(train_set) // options.global_batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.learning_rate, total_steps=steps)

    def correct(batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
        x, y = batch
        return {"correct": float((model(x).argmax(dim=1) == y).sum())}

    with edl.open() as session:  # edl
        model, optimizer, schedule = edl_torch.replicate(session, model, optimizer, schedule)  # edl
        loader = edl_torch.loader(  # edl, in place of a DataLoader
            session,
            train_set,
            epochs=options.epochs,
            global_batch=options.global_batch,
            micro_batch=options.micro_batch,
            seed=options.seed,
        )
        session.on_final(lambda _: save(model, options.out))  # edl: runs once, on one trainer
        for epoch in loader.epochs():  # edl, in place of range(epochs)
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                loader.backward(loss)  # edl, in place of loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            accuracy = loader.evaluate(test_set, correct)["correct"] / len(test_set)  # edl
            session.report({"loss": loss.item(), "accuracy": accuracy})  # edl
            if session.is_leader:  # edl
                print(f"epoch {epoch}  trainers {session.world_size}  test accuracy {accuracy:.4f}", flush=True)


def save(model: nn.Module, out: Path | None) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), out / "model.pt.part")
        (out / "model.pt.part").replace(out / "model.pt")


def load(path: Path) -> tuple[TensorDataset, TensorDataset]:
    """1,437 digits to train on and 360 to test, pixels from 0 to 1."""
    with np.load(path) as archive:
        x, y, x_test, y_test = (archive[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    most = 16 if x.dtype == np.uint8 else 1
    return tuple(
        TensorDataset(
            torch.from_numpy((pixels / most).astype(np.float32)).reshape(-1, 1, 8, 8),
            torch.from_numpy(classes.astype(np.int64)),
        )
        for pixels, classes in ((x, y), (x_test, y_test))
    )


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DIGITS, help="as digits.npz, which stands beside this script")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--global-batch", type=int, default=64, help="records of a step, over all trainers")
    parser.add_argument("--micro-batch", type=int, default=32, help="records of a backward pass, at most")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--out", type=Path, help="folder for model.pt")
    return parser


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(make_parser().parse_args())
