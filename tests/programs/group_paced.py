"""A group member that computes at a speed of its own: `group_paced.py FOLDER MASTER ORDINAL`.

Trainer n takes RECORD_S for each of its records, and as long again for each of the number in FOLDER/slow-n.  After each
step it writes its share, the step and the counts of all records to FOLDER/paced-n.json.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from tests.programs.group_counter import Counter, variables_of
from trainer_sdk.errors import StepAborted
from trainer_sdk.session import open_session

SIZE, BATCH = 50, 50
RECORD_S = 0.002


def main(folder: Path, master: str, ordinal: int) -> None:
    replica, slow = Counter(), folder / f"slow-{ordinal}"
    with open_session(variables_of(folder, master, ordinal)) as session:
        session.replicate(replica)
        steps = session.group_steps("paced", size=SIZE, epochs=100_000, global_batch=BATCH, seed=3)
        while (share := steps.next_step()) is not None:
            counted = np.zeros(SIZE, dtype=np.int64)
            if share.positions:
                np.add.at(counted, steps.records(share.positions), 1)
            factor = 1 + (int(slow.read_text()) if slow.exists() else 0)
            time.sleep(len(share.positions) * RECORD_S * factor)
            update = np.full(replica.weights.shape, len(share.positions), dtype=np.float32)
            try:
                steps.all_reduce(counted)
                steps.all_reduce(update)
            except StepAborted:
                continue
            if steps.end_step():
                replica.step(share, counted, update)
                told = {"share": len(share.positions), "step": share.step + 1, "counts": replica.counts.tolist()}
                draft = folder / f"paced-{ordinal}.part"
                draft.write_text(json.dumps(told | {"generation": share.generation}))
                draft.replace(folder / f"paced-{ordinal}.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
