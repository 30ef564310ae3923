"""The digits by torchft: `digits_torchft.py FOLDER GROUP LIGHTHOUSE WAITS`, a replica group of one process.

Its sampler and optimizer; its manager sums the gradients, because with its DistributedDataParallel on gloo and torch
2.13 the survivors ended by an AssertionError when a peer was killed.  The script is kind to it: a step's batch is found
by the step's number, so a step that was dropped trains its batch again, and a group that comes back goes on where the
others are.  The process joins once the file WAITS is in the folder.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torchft
from torch.nn import functional as F  # noqa: N812  as scripts write it

from bench.groups.programs.digits_job import (
    EPOCHS,
    LOCAL_BATCH,
    RECORDS,
    counted,
    make_model,
    note_step,
    numbered_digits,
    save_counts,
    wait_to_begin,
)

GROUPS: Final = 3


def main(folder: Path, number: int, lighthouse: str, waits: str) -> None:
    data, model = numbered_digits(), make_model()
    counts = torch.zeros(EPOCHS * RECORDS)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    wait_to_begin(folder, f"{number}-{waits}", waits)

    def load_state_dict(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])
        counts.copy_(state["counts"])

    def state_dict() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": inner.state_dict(), "counts": counts.clone()}

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=20)),
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        min_replica_size=2,
        timeout=timedelta(seconds=20),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"group-{number}",
        hostname="127.0.0.1",
        init_sync=False,  # all begin with the same seed
    )
    optimizer = torchft.Optimizer(manager, inner)
    sampler = torchft.DistributedSampler(data, number, GROUPS, group_rank=0, num_replicas=1, seed=3)
    steps = -(-len(sampler) // LOCAL_BATCH)
    while (step := manager.current_step()) < EPOCHS * steps:
        epoch, place = divmod(step, steps)
        sampler.set_epoch(epoch)
        x, y, records = data[list(sampler)[place * LOCAL_BATCH : (place + 1) * LOCAL_BATCH]]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        trained = counted(epoch, records)
        manager.allreduce(trained, reduce_op=torch.distributed.ReduceOp.SUM).wait()
        optimizer.step()
        if manager.current_step() > step:
            counts += trained
            if number == 0:
                note_step(folder, epoch, place + 1, manager.num_participants())
    if number == 0:
        save_counts(folder, counts)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
