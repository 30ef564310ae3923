"""Trainer that prints when its imports were done and when it had its first batch; batches take $STEP_S seconds.

Writes one JSON line per batch to $TIMES_DIR/NAME.jsonl: wall-clock times, so that the benchmark can subtract.
"""

import json
import os
import time
from pathlib import Path

import numpy as np

import trainer_sdk as edl

imported = time.time()
step_s = float(os.environ.get("STEP_S", "0.02"))
slow = os.environ.get("SLOW_ORDINAL", "") == os.environ.get("EDL_ORDINAL", "0")

with (
    edl.open() as session,
    (Path(os.environ["TIMES_DIR"]) / f"{os.environ['EDL_NAME']}.jsonl").open("a", buffering=1) as times,
):
    data = session.dataset("bench", size=100_000, epochs=int(os.environ.get("EPOCHS", "10")), batch_size=32, seed=1)
    model = session.tables({"w": edl.dense((256, 1024))}, optimiser=edl.sgd(0.001))
    for batch in data:
        weights = model.pull()
        began = time.time()
        time.sleep(3.0 if slow else step_s)  # a step of known length: what is measured is everything else
        model.push({"w": np.ones_like(weights["w"])})
        batch.done()
        times.write(json.dumps({"imported": imported, "began": began, "done": time.time()}) + "\n")
