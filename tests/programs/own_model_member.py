"""A group member that keeps its model as a NumPy script does: `own_model_member.py FOLDER MASTER ORDINAL`.

It trains what `group_counter.py` trains, and leaves the same files.
"""

import json
import sys
from pathlib import Path

import numpy as np

from tests.programs.group_counter import DATASET, pause, variables_of
from trainer_sdk.session import open_session


class Model:
    """How often each record was trained, beside weights that each process begins with others of."""

    def save(self):
        return {"counts": self.counts, "weights": self.weights}

    def restore(self, arrays):
        if arrays is None:
            arrays = {"counts": np.zeros(DATASET.size, np.int64), "weights": np.random.default_rng().normal(size=999)}
        self.counts, self.weights = arrays["counts"].copy(), arrays["weights"].copy()


def main(folder, master, ordinal):
    model, dropped = Model(), 0
    with open_session(variables_of(folder, master, ordinal)) as session:
        session.own_model(save=model.save, restore=model.restore)
        for batch in session.dataset(
            DATASET.name, size=DATASET.size, epochs=DATASET.epochs, batch_size=DATASET.batch_size, seed=DATASET.seed
        ):
            counted = np.zeros(DATASET.size, dtype=np.int64)
            np.add.at(counted, batch.indices, 1)
            pause(folder, session.step)
            moved = np.full(model.weights.shape, len(batch), dtype=np.float64)
            if not batch.all_reduce(counted, moved):
                dropped += 1
                continue
            model.counts += counted
            model.weights += moved / batch.step_size
            batch.done(counted=counted.sum())
        result = {
            "reason": "ended" if session.has_ended else "drained",
            "counts": model.counts.tolist(),
            "weights": model.weights.tobytes().hex()[:4096],
            "step": session.step,
            "redone": dropped,
        }
        (folder / f"trainer-{ordinal}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
