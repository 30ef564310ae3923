"""Programs that begin with torch imported: forks of one process, which imported it once.

To import torch and make an optimizer takes six seconds of CPU time, and a test of a group starts four trainers.  Each
is a process of its own all the same: it is killed, stopped and waited for by its number, and has its own output.

Run as a program it serves on its standard input, a socket, until that ends: `[command, environment, log]` begins a
process and is answered with its number; a number is answered with its exit code (null: it runs).  It ends with who
started it.
"""

from __future__ import annotations

import gc
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.harness.errors import StartError

LOADING_BUDGET_S: Final = 300.0
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a process with more cannot be forked
WAIT_POLL_S: Final = 0.05


class ForkedProgram:
    """One of them, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, programs: ForkedPrograms, pid: int, args: Sequence[str]) -> None:
        self.pid, self.args = pid, args
        self.returncode: int | None = None
        self._programs = programs

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._programs.ask(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; -N: it was ended by signal N.  Raises subprocess.TimeoutExpired."""
        began_s = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began_s > timeout:
                raise subprocess.TimeoutExpired(list(self.args), timeout)
            time.sleep(WAIT_POLL_S)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing, if it is known to have ended: until then nobody else gets its number."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedPrograms:
    """The process that has imported torch; `close` ends it and all that it began."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.forked_programs"], stdin=theirs, env=_environment()
            )
        self._socket, self._lines = ours, ours.makefile("rw", encoding="utf-8")
        self._lock = threading.Lock()
        ours.settimeout(LOADING_BUDGET_S)

    def start(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> ForkedProgram:
        """`command`: a Python file and its arguments.  Raises StartError."""
        return ForkedProgram(self, int(self.ask([list(command), dict(environment), str(log)]) or 0), command)

    def ask(self, question: object) -> int | None:
        """Raises StartError if nobody answers."""
        with self._lock:
            self._lines.write(json.dumps(question) + "\n")
            self._lines.flush()
            answer = self._lines.readline()
        if not answer:
            raise StartError(f"the process that has imported torch has ended: {self._process.wait()}")
        found: int | None = json.loads(answer)
        return found

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
        self._process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **ONE_THREAD}


# ---- the process ----------------------------------------------------------------------------------------------------


def load() -> None:
    """All that a script of torch imports, also with its first optimizer; no thread may be left by it."""
    import torch  # noqa: PLC0415  here alone

    import trainer_sdk.torch  # noqa: F401, PLC0415

    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def serve(connection: socket.socket) -> tuple[str, ...]:
    """Until the questions end; then nothing of it runs any more.  In a process that it begins: the command."""
    running: set[int] = set()
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            question = json.loads(line)
            if isinstance(question, int):
                answer = _ended(question)
                running -= set() if answer is None else {question}
            else:
                command, environment, log = question
                answer = _fork()
                if not answer:
                    _begin(environment, log)
                    return tuple(command)
                running.add(answer)
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return ()


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _fork() -> int:
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    assert threads == 1, f"{threads} threads: what the others hold would be held for ever in a fork"
    return os.fork()


def _begin(environment: Mapping[str, str], log: str) -> None:
    for number, file in enumerate((os.devnull, log, log)):
        opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    tempfile.tempdir = None  # as the environment says, not as it was here


def main() -> None:
    load()
    gc.freeze()
    command = serve(socket.socket(fileno=os.dup(0)))
    if command:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
