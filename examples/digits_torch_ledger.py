"""`digits_torch.py` with a proof: a second module counts how often each digit was trained.

    edl launch --trainers 1:4 examples/digits_torch_ledger.py --out model

Whoever comes, leaves or is killed meanwhile, every number in `model/ledger.npy` is that of the epochs.  The counters
are learned like the model, so they count what is in the model, and not what somebody believes to have sent there.
With `--pause 0.04` each micro-batch takes as long as a larger model's, so that more trainers make a faster group.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from digits_torch import load, make_model, make_parser, save
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it
from torch.utils.data import TensorDataset

import trainer_sdk as edl
import trainer_sdk.torch as edl_torch


class Ledger(nn.Module):
    """A counter for each digit: a step of its optimizer adds one wherever the digit was trained in it."""

    def __init__(self, digits: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(digits, dtype=torch.float64))

    def forward(self, digits: torch.Tensor, in_step: int) -> torch.Tensor:
        """Zero, whose gradient by each counter is -1 in a step of `in_step` digits."""
        counts = self.counts[digits]
        return (counts.detach() - counts).mean() * in_step


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    train_set, test_set = load(options.data)
    size, global_batch = len(train_set), options.global_batch
    numbered = TensorDataset(*train_set.tensors, torch.arange(size))
    model, ledger = make_model(), Ledger(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    counting = torch.optim.SGD(ledger.parameters(), lr=1.0)
    steps = options.epochs * -(-size // global_batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.learning_rate, total_steps=steps)

    def correct(batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
        x, y = batch
        return {"correct": float((model(x).argmax(dim=1) == y).sum())}

    def finish(_: object) -> None:
        if options.out is not None:
            save(model, options.out)
            np.save(options.out / "ledger.npy", ledger.counts.detach().round().long().numpy())

    with edl.open() as session:
        edl_torch.replicate(session, model, optimizer, schedule, ledger, counting)
        loader = edl_torch.loader(
            session,
            numbered,
            epochs=options.epochs,
            global_batch=global_batch,
            micro_batch=options.micro_batch,
            seed=options.seed,
        )
        session.on_final(finish)
        for epoch in loader.epochs():
            for x, y, digits in loader:
                in_step = min(global_batch, size - loader.step % len(loader) * global_batch)  # an epoch's last has less
                loss = F.cross_entropy(model(x), y)
                loader.backward(loss + ledger(digits, in_step))
                time.sleep(options.pause)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                for each in (optimizer, counting, schedule):
                    each.step()
                for each in (optimizer, counting):
                    each.zero_grad()
            accuracy = loader.evaluate(test_set, correct)["correct"] / len(test_set)
            session.report({"loss": loss.item(), "accuracy": accuracy})
            if session.is_leader:
                print(f"epoch {epoch}  trainers {session.world_size}  test accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = make_parser()
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each micro-batch takes in addition")
    train(parser.parse_args())
