"""A trainer that keeps its model itself, a counter for each record: committed together with its marks (rule 33)."""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import trainer_sdk as edl


class Counts:
    def __init__(self, size):
        self.numbers = np.zeros(size, dtype=np.int64)

    def save(self):
        return {"counts": self.numbers}

    def restore(self, arrays):
        self.numbers[:] = 0 if arrays is None else arrays["counts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--step-s", type=float, default=0.04)
    parser.add_argument("--haste", type=Path, default=Path("never"), help="once this file is there, no step takes time")
    arguments = parser.parse_args()
    model = Counts(arguments.size)
    with edl.open() as session:
        data = session.dataset(
            "counts", size=arguments.size, epochs=arguments.epochs, batch_size=arguments.batch_size, seed=3
        )
        session.on_drain(lambda: sys.stdout.write("told to leave\n"))
        session.own_model(save=model.save, restore=model.restore)
        for batch in data:
            if not arguments.haste.exists():
                time.sleep(arguments.step_s)
            model.numbers[batch.indices] += 1
            batch.done()


if __name__ == "__main__":
    main()
