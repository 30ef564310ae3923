"""A group member whose model counts how often each record was trained: `group_counter.py FOLDER MASTER ORDINAL`.

FOLDER has a folder `sockets` of mode 0700 and the checkpoints; the result is NAME.json there.  The file `poison` names
a position that kills whoever reads it; with the file `raises` the script raises first.  With the file `hook` there is
a final hook: it adds a line to `hooked`, kills its process if that is the first line, and else ends once the file
`saved` is there.  Whoever finds the file `evaluate` between two steps removes it and evaluates for a while.  Trainer 1
hangs in its step while the file `hang-1` is there, and so on.  With the file `restores-1` it
hangs as it takes a replica, while that is there.  With the file `compiles-1` trainer 1 takes long over the
first step in which it has records.  With the file `large` the replica is large enough for
shards.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from master.api.identities import DatasetSpec
from tests.harness.master_process import JOB
from trainer_sdk.errors import StepAborted, UsageError
from trainer_sdk.group.array_cuts import shard_of
from trainer_sdk.group.port import CapturedShard, CapturedState, StepShare
from trainer_sdk.session import Session, open_session

DATASET = DatasetSpec(name="counted", size=50, epochs=40, batch_size=7, seed=3)
LONG = replace(DATASET, epochs=150)  # with pauses that do not grow, for a job whose trainers compile for a minute
EVALUATION_S = 8.0  # many median steps
COMPILING_S = 6.0  # more than ten median steps
PAUSE_S = 0.3  # of each of the first steps, until the file `hurry` is there
STEADY_STEPS = 80  # after these the pause grows: a test's faults come long before the end of a job that soon ends then


class Counter:
    """The replica: a count of each record, beside weights whose first values are this process's own."""

    layout = "counts-50"
    restoring: Path | None = None  # it hangs while this is there

    def __init__(self) -> None:
        self.counts = np.zeros(DATASET.size, dtype=np.int64)
        self.weights = np.random.default_rng().normal(size=50_000).astype(np.float32)

    def capture(self) -> CapturedState:
        return CapturedState(arrays={"counts": self.counts.copy(), "weights": self.weights.copy()})

    def step(self, share: StepShare, counted: npt.NDArray[np.int64], update: npt.NDArray[np.float32]) -> None:
        self.counts += counted
        self.weights += update / share.records

    def restore(self, captured: CapturedState) -> None:
        while self.restoring is not None and self.restoring.exists():
            time.sleep(PAUSE_S)
        self.counts[:] = captured.arrays["counts"]
        self.weights[:] = captured.arrays["weights"]


class LargeCounter(Counter):
    """A replica that is copied in shards: beside the counts an array whose every row tells the step."""

    layout = "counts-50-large"
    rows = (1 << 12, 1 << 10)  # 32 MiB

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, share: StepShare, counted: npt.NDArray[np.int64], update: npt.NDArray[np.float32]) -> None:
        super().step(share, counted, update)
        self.steps = share.step + 1

    def replica_bytes(self) -> int:
        return 8 * self.rows[0] * self.rows[1]

    def capture(self) -> CapturedState:
        captured = super().capture()
        return replace(captured, arrays={**captured.arrays, "ballast": np.full(self.rows, self.steps)})

    def capture_shard(self, shard: int, shards: int) -> CapturedShard:
        return shard_of(self.capture(), shard, shards)

    def restore(self, captured: CapturedState) -> None:
        super().restore(captured)
        (self.steps,) = np.unique(captured.arrays["ballast"]).tolist()


def pause(folder: Path, step: int) -> None:
    """Of each step, until a test makes the file `hurry` once its faults are over."""
    if not (folder / "hurry").exists():
        time.sleep(PAUSE_S * max(1.0, (step - STEADY_STEPS) / 10))


def run_hook(folder: Path, ordinal: int) -> None:
    with (folder / "hooked").open("a") as hooked:
        hooked.write(f"{ordinal}\n")
    if len((folder / "hooked").read_text().split()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while not (folder / "saved").exists():
        time.sleep(PAUSE_S)


def evaluate(folder: Path) -> None:
    with suppress(FileNotFoundError):
        (folder / "evaluate").unlink()
        time.sleep(EVALUATION_S)


def train(session: Session, replica: Counter, folder: Path, ordinal: int) -> int:
    """Counts records until the loop is over; how many steps came again."""
    steps = session.group_steps(
        DATASET.name, size=DATASET.size, epochs=DATASET.epochs, global_batch=DATASET.batch_size, seed=DATASET.seed
    )
    poison = int((folder / "poison").read_text()) if (folder / "poison").exists() else -1
    redone, has_compiled = 0, not (folder / f"compiles-{ordinal}").exists()
    while (share := steps.next_step()) is not None:
        redone += share.is_redo
        if poison in share.positions | share.spare:
            if (folder / "raises").exists():
                raise PoisonError
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = np.zeros(DATASET.size, dtype=np.int64)
        if share.positions:
            np.add.at(gradient, steps.records(share.positions), 1)
        if share.positions and not has_compiled:
            time.sleep(COMPILING_S)
            has_compiled = True
        while (folder / f"hang-{ordinal}").exists():
            time.sleep(PAUSE_S)
        pause(folder, share.step)
        update = np.full(replica.weights.shape, len(share.positions), dtype=np.float32)
        try:
            steps.all_reduce(update)
            steps.all_reduce(gradient)
        except StepAborted:
            continue
        if steps.end_step():
            replica.step(share, gradient, update)
            evaluate(folder)
    return redone


def variables_of(folder: Path, master: str, ordinal: int) -> dict[str, str]:
    """The environment of a member's pod."""
    return {
        "EDL_JOB": JOB,
        "EDL_NAME": f"trainer-{ordinal}",
        "EDL_ORDINAL": str(ordinal),
        "EDL_MASTER": master,
        "EDL_GROUP": "1",
        "EDL_LISTEN": f"unix:{folder}/sockets",
        "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
    }


class PoisonError(Exception):
    """A record that cannot be trained."""


def main(folder: Path, master: str, ordinal: int) -> None:
    replica = LargeCounter() if (folder / "large").exists() else Counter()
    replica.restoring = folder / f"restores-{ordinal}"
    with open_session(variables_of(folder, master, ordinal)) as session:
        session.replicate(replica)
        if (folder / "hook").exists():
            session.on_final(lambda _: run_hook(folder, ordinal))
        redone = train(session, replica, folder, ordinal)
        result = {
            "reason": "ended" if session.has_ended else "drained",
            "counts": replica.counts.tolist(),
            "weights": replica.weights.tobytes().hex()[:4096],
            "step": session.step,
            "redone": redone,
        }
        (folder / f"trainer-{ordinal}.json").write_text(json.dumps(result))
    if (folder / "again").exists():
        try:
            open_session(variables_of(folder, master, ordinal))
        except UsageError as error:
            (folder / f"again-{ordinal}").write_text(str(error))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    except PoisonError:
        os.kill(os.getpid(), signal.SIGKILL)
