"""A group member whose model counts how often each record was trained: `group_counter.py FOLDER MASTER ORDINAL`.

FOLDER has a folder `sockets` of mode 0700 and the checkpoints; the result is NAME.json there.  The file `poison` names
a position that kills whoever trains it.  With the file `hook` there is a final hook: it adds a line to `hooked`, kills
its process if that is the first line, and else ends once the file `saved` is there.
"""

import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path

import numpy as np

from master.api.checkpoints.storage import open_storage
from master.api.identities import DatasetSpec, Incarnation, MemberName
from master.api.wire.hello import Hello
from tests.harness.master_process import JOB
from trainer_sdk.collective import CollectiveListener
from trainer_sdk.errors import StepAborted
from trainer_sdk.group.core.member_state import MemberState
from trainer_sdk.group.member_runtime import MemberRuntime
from trainer_sdk.group.port import CapturedState, GroupFinish
from trainer_sdk.master_stream import MasterAddress
from trainer_sdk.record_order import RecordOrder
from trainer_sdk.runtime.drain_signal import DrainSignal
from trainer_sdk.transport.security import Security

DATASET = DatasetSpec(name="counted", size=50, epochs=150, batch_size=7, seed=3)
PAUSE_S = 0.3  # of a step, until the file `hurry` is there: a test's faults come long before the job's end


class Counter:
    """The replica: a count of each record, beside weights whose first values are this process's own."""

    layout = "counts-50"

    def __init__(self) -> None:
        self.counts = np.zeros(DATASET.size, dtype=np.int64)
        self.weights = np.random.default_rng().normal(size=50_000).astype(np.float32)

    def capture(self) -> CapturedState:
        return CapturedState(arrays={"counts": self.counts.copy(), "weights": self.weights.copy()})

    def restore(self, captured: CapturedState) -> None:
        self.counts[:] = captured.arrays["counts"]
        self.weights[:] = captured.arrays["weights"]


def run_hook(folder: Path, ordinal: int) -> None:
    with (folder / "hooked").open("a") as hooked:
        hooked.write(f"{ordinal}\n")
    if len((folder / "hooked").read_text().split()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while not (folder / "saved").exists():
        time.sleep(PAUSE_S)


def main(folder: Path, master: str, ordinal: int) -> None:
    incarnation = uuid.uuid4().hex[:12]
    listener = CollectiveListener(f"unix:{folder}/sockets", Security(), incarnation)
    state = MemberState(
        name=MemberName(f"trainer-{ordinal}"),
        ordinal=ordinal,
        incarnation=Incarnation(incarnation),
        address=listener.address,
        dataset=DATASET,
        layout=Counter.layout,
        has_final_hook=(folder / "hook").exists(),
    )
    replica = Counter()
    runtime = MemberRuntime(
        state,
        replica=replica,
        listener=listener,
        storage=open_storage(str(folder / "checkpoints")),
        master=MasterAddress(target=master, hello=Hello(job=JOB, software="test")),
    )
    drain_signal = DrainSignal(lambda: runtime.drain(grace_s=20.0, reason="SIGTERM"))
    drain_signal.install()
    poison = int((folder / "poison").read_text()) if (folder / "poison").exists() else -1
    order = RecordOrder(DATASET)
    redone = 0
    try:
        while not isinstance(step := runtime.begin_step(), GroupFinish):
            redone += step.is_redo
            if poison in step.positions:
                os.kill(os.getpid(), signal.SIGKILL)
            gradient = np.zeros(DATASET.size, dtype=np.int64)
            if step.positions:
                np.add.at(gradient, order.records(step.positions), 1)
            if not (folder / "hurry").exists():
                time.sleep(PAUSE_S)
            update = np.full(replica.weights.shape, len(step.positions), dtype=np.float32)
            try:
                runtime.all_reduce(update)
                runtime.all_reduce(gradient)
            except StepAborted:
                continue
            if runtime.end_step():
                replica.counts += gradient
                replica.weights += update / step.records
        if step.final_saver:
            run_hook(folder, ordinal)
            runtime.final_hook_done()
        result = {
            "reason": str(step.reason),
            "counts": replica.counts.tolist(),
            "weights": replica.weights.tobytes().hex()[:4096],
            "step": runtime.step,
            "redone": redone,
        }
        (folder / f"trainer-{ordinal}.json").write_text(json.dumps(result))
    finally:
        runtime.close("the loop has ended")
        drain_signal.restore()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
