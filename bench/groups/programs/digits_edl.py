"""The digits by EDL: `digits_edl.py FOLDER WAITS`, one trainer of a group.

The counters are a model of their own, as in `examples/digits_torch_ledger.py`.  The process joins once the
file WAITS is in the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it

import trainer_sdk as edl
import trainer_sdk.torch as edl_torch
from bench.groups.programs.digits_job import (
    EPOCHS,
    LOCAL_BATCH,
    RECORDS,
    make_model,
    note_step,
    numbered_digits,
    save_counts,
    wait_to_begin,
)

GLOBAL_BATCH: Final = 2 * LOCAL_BATCH


class Counters(nn.Module):
    """A step of its optimizer adds one to the counter of each record and epoch that was trained in it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(EPOCHS * RECORDS, dtype=torch.float64))

    def forward(self, epoch: int, records: torch.Tensor, in_step: int) -> torch.Tensor:
        """Zero, whose gradient by each counter is -1 in a step of `in_step` records."""
        counts = self.counts[epoch * RECORDS + records]
        return (counts.detach() - counts).mean() * in_step


def main(folder: Path, waits: str) -> None:
    data, model, counters = numbered_digits(), make_model(), Counters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counting = torch.optim.SGD(counters.parameters(), lr=1.0)
    wait_to_begin(folder, f"{os.environ['EDL_ORDINAL']}-{waits}", waits)
    with edl.open() as session:
        edl_torch.replicate(session, model, optimizer, counters, counting)
        loader = edl_torch.loader(session, data, epochs=EPOCHS, global_batch=GLOBAL_BATCH, seed=3)
        session.on_final(lambda _: save_counts(folder, counters.counts.detach()))
        for epoch in loader.epochs():
            for x, y, records in loader:
                place = loader.step % len(loader)
                in_step = min(GLOBAL_BATCH, RECORDS - place * GLOBAL_BATCH)  # an epoch's last one has less
                loader.backward(F.cross_entropy(model(x), y) + counters(epoch, records, in_step))
                for each in (optimizer, counting):
                    each.step()
                    each.zero_grad()
                if loader.has_stepped and session.is_leader:
                    note_step(folder, epoch, place + 1, session.world_size)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
