"""A small transformer, fine-tuned from a saved state by any number of trainers: it learns to sort digits.

    python examples/transformer_finetune.py --pretrain base.pt        a plain script, once: it learns to copy digits
    python examples/transformer_finetune.py --base base.pt            alone
    edl launch --trainers 1:4 examples/transformer_finetune.py --base base.pt

It has what fine-tuning has: loaded weights, a frozen embedding, parameter groups, bfloat16 by autocast, clipping,
a warm-up, and a moving average of the weights, which is what is evaluated and saved.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

import trainer_sdk as edl
import trainer_sdk.torch as edl_torch

LENGTH = 10  # digits of a sequence


class Sequences(Dataset):
    """Sequences of digits, each a function of its number, and what the model has to answer: the same, or sorted."""

    def __init__(self, first: int, size: int, *, is_sorted: bool) -> None:
        self.first, self.size, self.is_sorted = first, size, is_sorted

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        digits = torch.randint(10, (LENGTH,), generator=torch.Generator().manual_seed(self.first + number))
        return digits, digits.sort().values if self.is_sorted else digits


class Transformer(nn.Module):
    """Two layers of self-attention over the digits and their places."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.digits, self.places = nn.Embedding(10, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.digits(x) + self.places(torch.arange(x.shape[1], device=x.device))))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def pretrain(out: Path) -> None:
    """A plain script, without a line of EDL."""
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for batch in torch.utils.data.DataLoader(Sequences(0, 6400, is_sorted=False), batch_size=64):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), out)
    print(f"{out}: loss of copying {loss.item():.4f}")


def finetune(options: argparse.Namespace) -> None:
    train_set = Sequences(1_000_000, options.size, is_sorted=True)
    test_set = Sequences(2_000_000, 1000, is_sorted=True)
    model = Transformer()
    model.load_state_dict(torch.load(options.base, weights_only=True))
    model.digits.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        [
            {"params": model.places.parameters(), "lr": 1e-4},
            {"params": [*model.layers.parameters(), *model.head.parameters()], "lr": 2e-3},
        ]
    )
    steps = options.epochs * -(-len(train_set) // options.global_batch)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 20)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], milestones=[20])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))

    def sorted_rightly(batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
        x, y = batch
        return {"right": float((average(x).argmax(dim=2) == y).all(dim=1).sum())}

    with edl.open() as session:  # edl
        edl_torch.replicate(session, model, optimizer, schedule, average)  # edl
        loader = edl_torch.loader(  # edl, in place of a DataLoader
            session, train_set, epochs=options.epochs, global_batch=options.global_batch, micro_batch=32, seed=7
        )
        session.on_final(lambda _: save(average.module, options.out))  # edl: runs once, on one trainer
        for epoch in loader.epochs():  # edl, in place of range(epochs)
            for batch in loader:
                loss = loss_of(model, batch)
                loader.backward(loss)  # edl, in place of loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                average.update_parameters(model)
                optimizer.zero_grad()
            right = loader.evaluate(test_set, sorted_rightly)["right"] / len(test_set)  # edl
            session.report({"loss": loss.item(), "right": right})  # edl
            if session.is_leader:  # edl
                print(f"epoch {epoch}  trainers {session.world_size}  sorted rightly {right:.3f}", flush=True)


def save(model: nn.Module, out: Path | None) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), out / "model.pt.part")
        (out / "model.pt.part").replace(out / "model.pt")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pretrain", type=Path, metavar="FILE", help="train the base model into this file, and end")
    parser.add_argument("--base", type=Path, metavar="FILE", help="state that the fine-tuning begins with")
    parser.add_argument("--size", type=int, default=6400, help="sequences of an epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--global-batch", type=int, default=64, help="sequences of a step, over all trainers")
    parser.add_argument("--out", type=Path, help="folder for model.pt")
    options = parser.parse_args()
    if (options.pretrain is None) == (options.base is None):
        parser.error("give --pretrain FILE once, then --base FILE")
    return options


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(7)
    chosen = parse()
    if chosen.pretrain is not None:
        pretrain(chosen.pretrain)
    else:
        finetune(chosen)
