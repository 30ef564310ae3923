"""The ledger: a trainer whose model counts, for every record, how often its gradient was applied.

After E epochs, under any faults, every counter is exactly E (less quarantined positions), and in every checkpoint on
the way the counters equal its data state (M1).  They are int64 and SGD's learning rate is -1: nothing is rounded.

    python tests/programs/ledger.py --size 400 --epochs 3 --batch-size 8 [--dense] [--pause-s 0.01] [--out FILE.npz]

The final counters go to FILE.npz (array `counts`).  `--crash-at N` raises at the Nth batch; `--poison R` whenever
record R is in the batch.  `--pause-until FILE`: what a test waits for comes before the end of training.
`--evaluate-while FOLDER`: after a batch it does something else for as long as FOLDER has a file of its name.
`--patient`: no limit of a socket ends the wait for a server.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

import trainer_sdk as edl
from trainer_sdk.pserver.client import pserver_client
from trainer_sdk.transport.frames import WireLimits

TABLE = "ledger"
ENDLESS_S = 10_000.0
POLL_S = 0.1


def main() -> None:
    options = parse()
    if options.patient:
        limits = WireLimits(io_s=ENDLESS_S, hello_s=ENDLESS_S)
        pserver_client.ConnectionSettings = partial(
            pserver_client.ConnectionSettings, limits=limits, connect_s=ENDLESS_S
        )
    with edl.open() as session:
        data = session.dataset(
            "ledger", size=options.size, epochs=options.epochs, batch_size=options.batch_size, seed=options.seed
        )
        kind = edl.dense if options.dense else edl.sparse
        model = session.tables({TABLE: kind(options.size, dtype="int64")}, optimiser=edl.sgd(-1.0))
        session.on_drain(lambda: sys.stdout.write("told to leave\n"))
        session.on_final(lambda arrays: save(options.out, counters(model, arrays, options)))
        print("ledger: begins", flush=True)
        for given, batch in enumerate(data, start=1):
            check(options, batch, given)
            if options.dense:
                model.pull()
                gradient = np.zeros(options.size, dtype=np.int64)
                gradient[batch.indices] = 1
                pushed = gradient
            else:
                model.pull_rows(TABLE, batch.indices)
                pushed = (batch.indices, np.ones((len(batch), 1), dtype=np.int64))
            if options.pause_until is None or not options.pause_until.exists():
                time.sleep(options.pause_s)
            model.push({TABLE: pushed})
            batch.done(loss=1.0 / given)
            while options.evaluate_while and (options.evaluate_while / os.environ["EDL_NAME"]).exists():
                time.sleep(POLL_S)


def counters(model, arrays, options):
    rows = arrays[TABLE] if options.dense else model.pull_rows(TABLE, np.arange(options.size))
    return rows.reshape(-1).copy()


def save(out: Path | None, counts) -> None:
    sys.stdout.write(f"ledger: counters from {counts.min()} to {counts.max()}\n")
    if out is not None:
        part = out.with_suffix(".part.npz")
        np.savez(part, counts=counts)
        part.replace(out)


def check(options, batch, given) -> None:
    if given == options.crash_at:
        raise RuntimeError(f"told to raise at batch {given}")
    if options.poison >= 0 and options.poison in batch.indices:
        raise ValueError(f"record {options.poison} cannot be trained")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dense", action="store_true", help="one dense table instead of a sparse one")
    parser.add_argument("--pause-s", type=float, default=0.0, help="per batch, as if it were computed")
    parser.add_argument("--pause-until", type=Path, metavar="FILE", help="no pause once this file is there")
    parser.add_argument("--evaluate-while", type=Path, metavar="FOLDER")
    parser.add_argument("--patient", action="store_true", help="wait for a server that says nothing for hours")
    parser.add_argument("--crash-at", type=int, default=-1, metavar="N")
    parser.add_argument("--poison", type=int, default=-1, metavar="RECORD")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
