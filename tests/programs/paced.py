"""A training script as it stands, with batches that take longer until a file is there: `paced.py FILE SCRIPT [ARGS]`.

What a test waits for so comes before the end of training on any machine, and the rest is trained at full speed.
"""

import random
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainer_sdk.dataset import Batch, Data

PAUSE_S = 0.5


def paced(next_batch: Callable[[Data], Batch], until: Path) -> Callable[[Data], Batch]:
    """The pause comes while the trainer has the batch, as if the model were a larger one, or before it asks for one.

    Then the batch before is trained and not told yet: faults that come in pauses meet both.  `tests/chaos` has those
    in the middle of a push.
    """

    def next_paced(data: Data) -> Batch:
        has_batch = random.random() < 0.5
        if not has_batch:
            _pause(until)
        batch = next_batch(data)
        if has_batch:
            _pause(until)
        return batch

    return next_paced


def _pause(until: Path) -> None:
    if not until.exists():
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    _, until, *sys.argv = sys.argv
    Data.__next__ = paced(Data.__next__, Path(until))
    runpy.run_path(sys.argv[0], run_name="__main__")
