"""Plain sharding for tests: appends `epoch position record` of each finished batch's positions to a file of its own.

    python tests/programs/sharder.py --out FILE [--size N --epochs E --batch-size B --pause-s S]

Prints `begun` at its first batch and `ended` or `drained` when its loop is over.
"""

import argparse
import os
import time
from pathlib import Path

import trainer_sdk as edl


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--pause-s", type=float, default=0.02)
    options = parser.parse_args()
    budget_s = float(os.environ.get("SDK_TEST_BUDGET_S", "200"))
    with edl.open(master_budget_s=budget_s) as session, options.out.open("a") as out:
        data = session.dataset("s", size=options.size, epochs=options.epochs, batch_size=options.batch_size, seed=5)
        session.on_drain(lambda: say("callback"))
        for number, batch in enumerate(data):
            if number == 0:
                say("begun")
            time.sleep(options.pause_s)
            lines = (f"{batch.epoch} {p} {r}\n" for p, r in zip(batch.positions, batch.indices, strict=True))
            out.write("".join(lines))
            out.flush()
            batch.done(batches=float(number))
        say("ended" if session.has_ended else "drained")


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


if __name__ == "__main__":
    main()
