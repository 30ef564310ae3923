"""Trainer that pushes as fast as it can while the file $TURN exists and names so many trainers.

The file says what is pushed, `dense` or `rows`, and how many trainers push, as in `dense 2`.

Writes the end of every push, as monotonic seconds, to $TIMES_DIR/NAME, after the line `ready`, by which it has pushed
all rows once.
"""

import os
import time
from pathlib import Path

import numpy as np

import trainer_sdk as edl

TURN, ORDINAL = Path(os.environ["TURN"]), int(os.environ["EDL_ORDINAL"])
DENSE, ROWS, WIDTH, EACH = 262_144, 65_536, 64, 4_096
LOOK_EVERY_S = 0.002


def turn() -> str:
    """What to push, once it is this trainer's turn."""
    while True:
        try:
            kind, count = TURN.read_text().split()
        except FileNotFoundError:
            count = "0"
        if int(count) > ORDINAL:
            return kind
        time.sleep(LOOK_EVERY_S)


def main() -> None:
    random = np.random.default_rng(ORDINAL)
    dense, rows = np.ones(DENSE, dtype=np.float32), np.ones((EACH, WIDTH), dtype=np.float32)
    to_fill = np.split(np.arange(ROWS), ROWS // EACH)
    some = [random.choice(ROWS, EACH, replace=False) for _ in range(64)]
    with (
        edl.open() as session,
        (Path(os.environ["TIMES_DIR"]) / os.environ["EDL_NAME"]).open("a", buffering=1) as times,
    ):
        data = session.dataset("bench", size=1 << 30, epochs=1, batch_size=32, seed=1)
        tables = {"rows": edl.sparse(ROWS, WIDTH), "w": edl.dense(DENSE)}
        model = session.tables(tables, optimiser=edl.sgd(0.001))
        model.pull()
        for batch in data:
            if to_fill:
                model.push({"w": dense, "rows": (to_fill.pop(), rows)})
                batch.done()
                times.write("" if to_fill else "ready\n")
                continue
            kind = turn()
            model.push({"w": dense} if kind == "dense" else {"rows": (some[random.integers(64)], rows)})
            batch.done()
            times.write(f"{time.monotonic()}\n")


if __name__ == "__main__":
    main()
