"""A trainer for tests: counts each row once an epoch in a table on the parameter servers, slowly enough to be killed.

Once a file `haste` stands in its folder, no batch takes time.  In the end every counter is exactly the number of epochs
(the ledger); the final-save hook says so.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

import trainer_sdk as edl

SIZE, EPOCHS = 400, int(os.environ.get("ROWS_EPOCHS", "12"))


def check(weights: dict[str, np.ndarray]) -> None:
    wrong = np.flatnonzero(weights["ledger"] != EPOCHS)
    sys.stdout.write(f"ledger {'whole' if not len(wrong) else f'WRONG at {wrong[:10]}'}\n")


with edl.open() as session:
    data = session.dataset("rows", size=SIZE, epochs=EPOCHS, batch_size=10, seed=1)
    table = session.tables({"ledger": edl.dense((SIZE,), dtype="int64", optimiser=edl.sgd(-1.0))})
    session.on_final(check)
    for batch in data:
        table.pull()
        table.push({"ledger": np.bincount(batch.indices, minlength=SIZE)})
        batch.done()
        if not Path("haste").exists():
            time.sleep(0.5)
