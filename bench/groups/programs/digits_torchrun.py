"""The digits by torchrun: DDP on gloo, DistributedSampler, a checkpoint after each step, resumed by skipping steps.

As many scripts do: what was done is known as epoch and steps, and after a restart the epoch's first steps are left out.
In epoch 1, after HOLD_AT steps of two workers, it waits for the third, so that the resize comes in mid epoch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it
from torch.utils.data import DataLoader, DistributedSampler

from bench.groups.programs.digits_job import (
    EPOCHS,
    LOCAL_BATCH,
    RECORDS,
    counted,
    make_model,
    note_step,
    numbered_digits,
    save_counts,
    wait_for,
)

HOLD_AT: Final = 16


def main(folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    data, model = numbered_digits(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts, first_epoch, done = torch.zeros(EPOCHS * RECORDS), 0, 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        counts, first_epoch, done = saved["counts"], saved["epoch"], saved["done"]
    parallel = nn.parallel.DistributedDataParallel(model)
    sampler = DistributedSampler(data, ranks, rank, seed=3)
    for epoch in range(first_epoch, EPOCHS):
        sampler.set_epoch(epoch)
        for number, (x, y, records) in enumerate(DataLoader(data, LOCAL_BATCH, sampler=sampler), start=1):
            if epoch == first_epoch and number <= done:
                continue
            F.cross_entropy(parallel(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            trained = counted(epoch, records)
            torch.distributed.all_reduce(trained)
            counts += trained
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "counts": counts}
                torch.save({**state, "epoch": epoch, "done": number}, folder / "checkpoint.part")
                (folder / "checkpoint.part").replace(checkpoint)
                note_step(folder, epoch, number, ranks)
            if ranks == 2 and (epoch, number) == (1, HOLD_AT):
                wait_for(folder / "never")  # the agent ends this worker when the third one has come
    if rank == 0:
        save_counts(folder, counts)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
