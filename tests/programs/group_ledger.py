"""Members of a group for chaos runs: `group_ledger.py FOLDER MASTER JOB` forks one for each line `start ORDINAL`.

The replica holds a count for each record, a hash over the records of each step done, and weights whose sums depend on
the order of additions.  After each step a member writes a line to its diary: `TIME GENERATION STEP DIGEST`.  SIGUSR1
severs its connections to other members.  FOLDER has `sockets` (mode 0700), `checkpoints`, `diaries`, `logs`; while the
file `slow` is there a step takes PAUSE_S longer; `floats` has the number of weights, `epochs` that of epochs.  With a
file `undigested` the digest leaves the weights out, which takes longer than to train them where they are many.

The fork server answers `started ORDINAL PID` and `ended PID STATUS`.
"""

import contextlib
import ctypes
import hashlib
import os
import select
import signal
import socket
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from master.api.identities import DatasetSpec
from trainer_sdk.errors import StepAborted
from trainer_sdk.group.port import CapturedState
from trainer_sdk.session import open_session

DATASET = DatasetSpec(name="ledger", size=97, epochs=150, batch_size=12, seed=5)
PAUSE_S = 0.02
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

Train = Callable[[Path, str, str, int], None]
"""Trains as one member: folder, the master's address, job, ordinal."""


class Ledger:
    """The replica."""

    layout = "ledger-97"

    def __init__(self, floats: int) -> None:
        self.counts = np.zeros(DATASET.size, dtype=np.int64)
        self.chain = np.zeros(32, dtype=np.uint8)
        self.weights = np.random.default_rng().normal(size=floats).astype(np.float32)

    def capture(self) -> CapturedState:
        return CapturedState(arrays={name: array.copy() for name, array in vars(self).items()})

    def digests(self) -> dict[str, int]:
        """Of words of eight bytes, if they come out even: a checksum of 10 MB at each member takes long."""
        return {name: digest_of(array) for name, array in vars(self).items()}

    def restore(self, captured: CapturedState) -> None:
        for name, array in vars(self).items():
            array[:] = captured.arrays[name]

    def apply(self, counted: np.ndarray, update: np.ndarray) -> None:
        self.counts += counted
        self.chain[:] = next_link(self.chain, counted)
        self.weights += update

    def digest(self, *, is_whole: bool = True) -> str:
        digest = hashlib.sha256()
        for array in (self.counts, self.chain, *((self.weights,) if is_whole else ())):
            digest.update(array)
        return digest.hexdigest()[:16]


def digest_of(array: np.ndarray) -> int:
    return zlib.crc32(array) if array.nbytes % 8 else int(array.view(np.uint64).sum())


def next_link(chain: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The hash over all steps so far, and the records of this one."""
    return np.frombuffer(hashlib.sha256(chain.tobytes() + counted.tobytes()).digest(), dtype=np.uint8)


def member_variables(folder: Path, master: str, job: str, ordinal: int) -> dict[str, str]:
    """The environment of this member."""
    return {
        "EDL_JOB": job,
        "EDL_NAME": f"{job}-trainer-{ordinal}",
        "EDL_ORDINAL": str(ordinal),
        "EDL_MASTER": master,
        "EDL_GROUP": "1",
        "EDL_GRACE_S": "30",
        "EDL_LISTEN": f"unix:{folder}/sockets",
        "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
    }


def train(folder: Path, master: str, job: str, ordinal: int) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: sever(folder / "sockets"))
    variables = member_variables(folder, master, job, ordinal)
    replica = Ledger(number_in(folder / "floats", 20_000))
    epochs = number_in(folder / "epochs", DATASET.epochs)
    is_whole = not (folder / "undigested").exists()
    with open_session(variables) as session, (folder / "diaries" / f"{ordinal}").open("w", buffering=1) as diary:
        session.replicate(replica)
        session.on_final(lambda _: (folder / f"hooked-{ordinal}").touch())
        steps = session.group_steps(
            DATASET.name, size=DATASET.size, epochs=epochs, global_batch=DATASET.batch_size, seed=DATASET.seed
        )
        while (share := steps.next_step()) is not None:
            counted = np.zeros(DATASET.size, dtype=np.int64)
            update = np.zeros(replica.weights.shape, dtype=np.float32)
            if share.positions:
                records = steps.records(share.positions)
                np.add.at(counted, records, 1)
                update += np.sin(records).sum() / share.records
            if (folder / "slow").exists():
                time.sleep(PAUSE_S)
            try:
                steps.all_reduce(update)
                steps.all_reduce(counted)
            except StepAborted:
                continue
            if steps.end_step():
                replica.apply(counted, update)
                digest = replica.digest(is_whole=is_whole)
                diary.write(f"{time.monotonic()} {share.generation} {share.step} {digest}\n")


def number_in(file: Path, otherwise: int) -> int:
    return int(file.read_text()) if file.exists() else otherwise


def sever(sockets: Path) -> None:
    """Shuts down each connection to or from a member's socket."""
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if not descriptor.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
                if connection.family == socket.AF_UNIX:
                    ends = [connection.getsockname(), connection.getpeername()]
                    if any(str(end).startswith(str(sockets)) for end in ends):
                        connection.shutdown(socket.SHUT_RDWR)


def serve(folder: Path, master: str, job: str, train: Train = train) -> None:
    """Forks members that `train`, until its input ends; a fork costs milliseconds where a start costs a second."""
    buffer = b""
    while True:
        if select.select([0], [], [], 0.05)[0]:
            got = os.read(0, 4096)
            if not got:
                return
            buffer += got
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            ordinal = int(line.split()[1])
            pid = os.fork()
            if pid == 0:
                be_member(folder, master, job, ordinal, train)
            tell(f"started {ordinal} {pid}")
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                tell(f"ended {ended[0]} {os.waitstatus_to_exitcode(ended[1])}")


def be_member(folder: Path, master: str, job: str, ordinal: int, train: Train) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    log = os.open(folder / "logs" / f"{ordinal}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(0)
    code = 1
    try:
        train(folder, master, job, ordinal)
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:  # noqa: BLE001  as the interpreter does at its outermost
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
