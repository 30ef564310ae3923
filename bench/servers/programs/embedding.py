"""Trainer of a large embedding that writes the end of every batch, as monotonic seconds, to $TIMES_DIR/NAME.

First it trains its share of all rows once, so that every row takes its room on the servers; `ready` is its file's
first line then.  A batch pulls 4,096 rows and a small dense table, computes for $STEP_S seconds, and pushes both.
"""

import os
import time
from pathlib import Path

import numpy as np

import trainer_sdk as edl

ROWS, WIDTH = int(os.environ["ROWS"]), int(os.environ["WIDTH"])
TRAINERS, ORDINAL = int(os.environ["TRAINERS"]), int(os.environ["EDL_ORDINAL"])
STEP_S = float(os.environ["STEP_S"])
FILL_ROWS, BATCH_ROWS = 16_384, 4_096


def main() -> None:
    mine = np.arange(ORDINAL, ROWS, TRAINERS, dtype=np.int64)
    to_fill = [mine[at : at + FILL_ROWS] for at in range(0, len(mine), FILL_ROWS)][::-1]
    random = np.random.default_rng(ORDINAL)
    with (
        edl.open() as session,
        (Path(os.environ["TIMES_DIR"]) / os.environ["EDL_NAME"]).open("a", buffering=1) as times,
    ):
        data = session.dataset("bench", size=10_000_000, epochs=10, batch_size=32, seed=1)
        tables = {"rows": edl.sparse(ROWS, WIDTH), "w": edl.dense(65_536)}
        model = session.tables(tables, optimiser=edl.sgd(0.001))
        for batch in data:
            is_filling = bool(to_fill)
            ids = to_fill.pop() if is_filling else random.integers(0, ROWS, BATCH_ROWS)
            weights = model.pull("w")["w"]
            if is_filling:
                gradient = np.ones((len(ids), WIDTH), dtype=np.float32)
            else:
                gradient = model.pull_rows("rows", ids)
                time.sleep(STEP_S)  # a step of known length: what is measured is everything else
            model.push({"rows": (ids, gradient), "w": np.ones_like(weights)})
            batch.done()
            if not is_filling:
                times.write(f"{time.monotonic()}\n")
            elif not to_fill:
                times.write("ready\n")


if __name__ == "__main__":
    main()
