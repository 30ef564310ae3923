"""A trainer whose model is a ledger: what is in a checkpoint can be compared with its data state, number by number.

Three dense tables of whole numbers, with a learning rate of -1, so that a push adds:

- `counts`, one number for each record: a batch adds 1 to its records;
- `prints`, numbers in every bucket: a batch adds the fingerprint of its positions to all of them, so that each bucket
  by itself says exactly which positions were applied to it, and how often;
- `stamps`, one number for each position: a batch adds a *nonce* of its own.  Every trainer pulls all stamps and writes
  down, before each push, which of them it saw.  So a reader of a checkpoint can tell, without asking the system about
  lineages, whether a gradient was computed on values that are in the checkpoint's own past (`tests.chaos.ledger`).

With `--rows` two sparse tables more, so that buckets have rows that go ahead of a move (`tests.chaos.rows`):

- `sums`, rows of two numbers: a position adds 1 and its fingerprint to every third row, beginning at the position's
  remainder by three.  So nearly every batch writes in every bucket, and each row says what was applied to it;
- `firsts`, a row for each position, to which the position adds 1: rows that are new all the time, and written once.
  Before each batch some of them are pulled, and the diary says whether they were there.

The diary is one file for each process: a line is written whole, before the push that it is about.
"""

import argparse
import json
import os
import secrets
import time
from pathlib import Path

import numpy as np

import trainer_sdk as edl

PRINTS_PER_BUCKET = 64  # the smallest block of a dense table, so each bucket gets one
SUMS_PER_BUCKET = 4  # about: the bucket of a row is a hash
SUMS_APART = 3
LOOKS = 32  # rows of `firsts` that are pulled before a batch
NONCE_BITS = 50


def fingerprints(positions):
    """Of each position, a hash below 2**40: sums of a million stay below 2**60."""
    numbers = np.asarray(positions, dtype=np.uint64)
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    return (mixed & np.uint64(2**40 - 1)).astype(np.int64)


def fingerprint(positions):
    """Of all of them together."""
    return int(fingerprints(positions).sum())


def sums(positions, count):
    """What these positions add to each of so many rows of `sums`."""
    numbers = np.asarray(positions, dtype=np.int64)
    out = np.zeros((count, 2), dtype=np.int64)
    for rest in range(SUMS_APART):
        mine = numbers[numbers % SUMS_APART == rest]
        out[rest::SUMS_APART] = len(mine), fingerprint(mine)
    return out


def tables(size, epochs, buckets, *, rows=False):
    """The declaration of the model."""
    add = edl.sgd(-1.0)
    declared = {
        "counts": edl.dense(size, dtype="int64", optimiser=add),
        "prints": edl.dense(buckets * PRINTS_PER_BUCKET, dtype="int64", optimiser=add),
        "stamps": edl.dense(size * epochs, dtype="int64", optimiser=add),
    }
    if rows:
        declared["sums"] = edl.sparse(buckets * SUMS_PER_BUCKET, 2, dtype="int64", optimiser=add)
        declared["firsts"] = edl.sparse(size * epochs, dtype="int64", optimiser=add)
    return declared


class Diary:
    """What one process saw before each push."""

    def __init__(self, path, cells):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._seen = np.zeros(cells, dtype=np.int64)

    def note(self, *, nonce, positions, stamps, pulled_at_s, looked):
        changed = np.flatnonzero(stamps != self._seen)
        line = {
            "nonce": nonce,
            "positions": list(positions.bounds),
            "pulled_at_s": pulled_at_s,
            "changed": changed.tolist(),
            "to": stamps[changed].tolist(),
            "looked": looked,
        }
        self._seen[:] = stamps
        os.write(self._file, json.dumps(line).encode() + b"\n")


def check_poison(arguments, where):
    """Some positions end whoever trains them, by an exception or at once."""
    bad = arguments.poison.intersection(where)
    if bad and arguments.raises:
        raise ValueError(f"position {min(bad)} cannot be trained")
    if bad:
        os.abort()


def look(model, before):
    """Some rows of `firsts` up to this position, and what they hold."""
    ids = np.unique(np.random.default_rng().integers(0, before + 1, LOOKS))
    return [ids.tolist(), model.pull_rows("firsts", ids)[:, 0].tolist()]


def row_gradients(where, buckets):
    """What a batch adds to the rows that it writes."""
    added = sums(where, buckets * SUMS_PER_BUCKET)
    written = np.flatnonzero(added[:, 0])
    firsts = (np.asarray(where, dtype=np.int64), np.ones((len(where), 1), dtype=np.int64))
    return {"sums": (written, added[written]), "firsts": firsts}


def train(arguments):
    name = f"{os.environ['EDL_NAME']}-{os.getpid()}-{secrets.token_hex(3)}"
    diary = Diary(arguments.diaries / f"{name}.jsonl", arguments.size * arguments.epochs)
    with edl.open() as session:
        data = session.dataset(
            "ledger", size=arguments.size, epochs=arguments.epochs, batch_size=arguments.batch_size, seed=arguments.seed
        )
        declared = tables(arguments.size, arguments.epochs, arguments.buckets, rows=arguments.rows)
        model = session.tables(declared)
        for batch in data:
            pulled_at_s = time.monotonic()
            stamps = model.pull("stamps")["stamps"]
            where = [p for start, stop in batch.positions.ranges() for p in range(start, stop)]
            check_poison(arguments, where)
            looked = look(model, max(where)) if arguments.rows else [[], []]
            nonce = secrets.randbits(NONCE_BITS) | 1
            diary.note(nonce=nonce, positions=batch.positions, stamps=stamps, pulled_at_s=pulled_at_s, looked=looked)
            counts = np.zeros(arguments.size, dtype=np.int64)
            counts[batch.indices] = 1
            mine = np.zeros(len(stamps), dtype=np.int64)
            mine[where] = nonce
            prints = np.full(arguments.buckets * PRINTS_PER_BUCKET, fingerprint(where), dtype=np.int64)
            if not arguments.haste.exists():
                time.sleep(arguments.step_s)  # the computation of a real model; signals land here and everywhere else
            rows = row_gradients(where, arguments.buckets) if arguments.rows else {}
            model.push({"counts": counts, "prints": prints, "stamps": mine, **rows})
            batch.done()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--rows", action="store_true", help="sparse tables too")
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--haste", type=Path, default=Path("never"), help="once this file is there, no step takes time")
    parser.add_argument("--diaries", type=Path, required=True)
    parser.add_argument("--poison", type=lambda text: {int(p) for p in text.split(",") if p}, default=set())
    parser.add_argument("--raises", action="store_true", help="poison raises; without this it aborts the process")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
