"""Members of a torch group whose steps take a given time: `paced_torch.py FOLDER MASTER JOB` forks them, as asked.

It uses the fork server of `tests/programs/group_ledger.py`: torch is imported, with what its first optimizer imports,
and the data are made once, and a member begins within milliseconds.  A record takes RECORD_S at its trainer, most of it
asleep: four trainers on two cores do not wait for cores.  After each step a member writes `TIME STEP TRAINERS` to
FOLDER/diaries/ORDINAL: seconds of the monotonic clock, steps that are done.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as scripts write it
from torch.utils.data import TensorDataset

import trainer_sdk.torch as edl_torch
from tests.harness.forked_programs import load
from tests.programs.group_ledger import member_variables, serve
from trainer_sdk.session import open_session

INPUTS: Final = 64
HIDDEN: Final = 512
GLOBAL_BATCH: Final = 128
STEP_S: Final = 0.1
MEMBERS: Final = 4
RECORD_S: Final = STEP_S * MEMBERS / GLOBAL_BATCH
STATE_BYTES: Final = 4 * 2 * (INPUTS * HIDDEN + HIDDEN * HIDDEN + HIDDEN * 10)  # parameters and momentum


def train(data: TensorDataset, folder: Path, master: str, job: str, ordinal: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(
        *(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    variables = member_variables(folder, master, job, ordinal)
    with open_session(variables) as session, (folder / "diaries" / f"{ordinal}").open("w", buffering=1) as diary:
        model, optimizer = edl_torch.replicate(session, model, optimizer)
        loader = edl_torch.loader(session, data, epochs=1000, global_batch=GLOBAL_BATCH, seed=3)
        for _ in loader.epochs():
            began_s = time.monotonic()
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                time.sleep(max(0.0, began_s + len(x) * RECORD_S - time.monotonic()))
                loader.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                began_s = time.monotonic()
                if loader.has_stepped:
                    diary.write(f"{began_s} {loader.step} {session.world_size}\n")


def main() -> None:
    load()  # with one thread: others would not be there in a fork
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(GLOBAL_BATCH * 1000, INPUTS), torch.randint(10, (GLOBAL_BATCH * 1000,)))
    serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3], partial(train, data))


if __name__ == "__main__":
    main()
