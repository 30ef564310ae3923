"""A member of a group as a process: sums large arrays until the group is aborted.

Arguments: folder, rank, size.  Writes `address-RANK`, then `step-RANK` after each sum, and `aborted-RANK` at the end.
A file `abort` in the folder has it abort its group from another thread.  With a fourth argument it forks a worker after
its first sum, as a data loader does, which lives until it is killed, and writes its process id to `worker-RANK`.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from trainer_sdk.collective import CollectiveAborted, CollectiveListener, Peer
from trainer_sdk.transport.security import Security

folder, rank, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
has_worker = len(sys.argv) > 4


def write(name, text):
    fresh = folder / f"fresh-{rank}"
    fresh.write_text(text)
    fresh.rename(folder / f"{name}-{rank}")


def watch(group):
    while not (folder / "abort").exists():
        time.sleep(0.02)
    group.abort("BROKEN 1")


def fork_worker():
    if (worker := os.fork()) == 0:
        while True:
            signal.pause()
    write("worker", str(worker))


listener = CollectiveListener("", Security(token=b"secret"), f"process-{rank}")
write("address", listener.address)
files = [folder / f"address-{number}" for number in range(size)]
while not all(file.exists() for file in files):
    time.sleep(0.02)
members = [Peer(f"process-{number}", file.read_text()) for number, file in enumerate(files)]
group = listener.connect(key="1-1", rank=rank, members=members, budget_s=120.0, idle_s=3600.0)
threading.Thread(target=watch, args=(group,), daemon=True).start()
step = 0
try:
    while True:
        array = np.ones(2_000_000, dtype=np.float32)
        group.all_reduce(array)
        if not (array == size).all():
            raise SystemExit("a wrong sum")
        step += 1
        if step == 1 and has_worker:
            fork_worker()
        write("step", str(step))
except CollectiveAborted as error:
    write("aborted", str(error))
group.close()
listener.close()
