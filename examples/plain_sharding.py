"""Data sharding without a model: every record is handed out, worked on, confirmed; outputs are keyed by position.

    python examples/plain_sharding.py              alone, with a master of its own
    edl run examples/plain_sharding.yaml           2 to 6 trainers, as room allows

Use it to feed an existing training loop, or to process a data set once.  Trainers may come, go and be killed at any
time.  Without a model there is nothing to commit together with the data, so the promise is: each record is confirmed
once per epoch, and work after the last commit may be done twice.  Writing outputs under their position makes that
harmless: the second writing is the same as the first.
"""

import argparse
from pathlib import Path

import numpy as np

import trainer_sdk as edl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("sharding-output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    with edl.open() as session:
        # One line names the data.  All trainers of the job say the same; the first one's word holds.
        data = session.dataset("squares", size=options.records, epochs=options.epochs, batch_size=50, seed=1)

        for batch in data:
            # batch.indices are record numbers, shuffled anew each epoch; batch.positions is their place in the job.
            squares = batch.indices.astype(np.int64) ** 2

            # Keyed by position and renamed into place: a batch that is done twice leaves one file.
            first = next(iter(batch.positions))
            part = options.out / f"{first:09d}.part"
            with part.open("wb") as file:
                np.save(file, np.column_stack([list(batch.positions), batch.indices, squares]))
            part.replace(options.out / f"{first:09d}.npy")

            # Only now does the batch count.  If this process dies before, somebody else gets the records.
            batch.done(largest=float(squares.max()))

        # The loop ends when everything is confirmed by all trainers together, or when this one was told to leave.
        print("all done" if session.has_ended else "leaving; others go on", flush=True)


if __name__ == "__main__":
    main()
