"""A real node: containerd, kubelet and kube-proxy in process, mount, network and host name spaces of their own.

    with start_node(place, plan) as node: ...

The node's first process is the child of `unshare`.  Killing it, or whoever started it, ends everything on the node.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.network import connect
from tests.e2e.node_files import PATH, RUNTIME_SOCKET, NodePlace
from tests.harness.commands import run
from tests.harness.errors import StartError
from tests.harness.processes import Program

FIRST_PROCESS: Final = Path(__file__).with_name("first_process.py")
NAMESPACES: Final = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
START_BUDGET_S: Final = 180.0
STOP_BUDGET_S: Final = 5.0
IMPORT_BUDGET_S: Final = 600.0
POLL_S: Final = 0.02
LOG_LINES: Final = 15
RUNTIME: Final = ("ctr", f"--address={RUNTIME_SOCKET}", "--namespace=k8s.io")
LOGS: Final = ("containerd", "kubelet", "kube-proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One that runs."""

    place: NodePlace
    program: Program
    pid: int  # of its first process

    @property
    def name(self) -> str:
        return self.place.name

    def run(self, *command: str, budget_s: float = 60.0) -> str:
        """Runs a program of the node, on the node; its standard output.  Raises ProgramError."""
        return run([*self._inside(), *command], budget_s=budget_s)

    def import_images(self, archives: Sequence[Path]) -> None:
        """Import the images.  The archives are read from this machine, not from the node."""
        for archive in archives:
            with archive.open("rb") as source:
                done = subprocess.run(
                    [
                        *self._inside(),
                        *RUNTIME,
                        "images",
                        "import",
                        "--no-unpack",
                        "-",
                    ],  # the kubelet's first use unpacks
                    stdin=source,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=IMPORT_BUDGET_S,
                )
            if done.returncode != 0:
                raise StartError(f"{self.name} does not take {archive}: {done.stderr}\n{self.log_tail()}")

    def kill(self, container: str) -> None:
        """SIGKILL for its first process; without a word to the kubelet."""
        self.run(*RUNTIME, "tasks", "kill", "--signal=SIGKILL", container)

    def log_tail(self) -> str:
        """The end of every log."""
        files = [self.place.folder / "var/log" / f"{name}.log" for name in LOGS]
        parts = [self.program.log_tail()]
        for file in files:
            if file.exists():
                lines = file.read_text(errors="replace").splitlines()[-LOG_LINES:]
                parts.append("\n".join([f"The end of {file}:", *lines]))
        return "\n\n".join(parts)

    def _inside(self) -> list[str]:
        spaces = ["--mount", "--net", "--uts", "--ipc", "--pid", "--root", "--wd"]
        return ["nsenter", f"--target={self.pid}", *spaces, "env", "-i", f"PATH={PATH}"]


@contextmanager
def start_node(place: NodePlace, plan: Path) -> Iterator[Node]:
    """One whose containerd answers; gone afterwards, with all that ran on it.  From the main thread."""
    command = ["/usr/bin/env", "unshare", *NAMESPACES, sys.executable, "-I", "-S", str(FIRST_PROCESS), str(plan)]
    program = Program(f"node-{place.name}", command, place.folder)
    try:
        pid = _wait_for_child(program)
        try:
            connect(place.name, place.number, pid)
            node = Node(place=place, program=program, pid=pid)
            _wait_for_runtime(node)
            yield node
        finally:
            kill_node(pid)
    finally:
        program.stop(STOP_BUDGET_S)
        for name in ("upper", "work", "var/lib"):  # a gigabyte of images; the logs stay
            shutil.rmtree(place.folder / name, ignore_errors=True)


def kill_node(pid: int) -> None:
    """Ends all that runs on the node whose first process this is.  `unshare`, its parent, ends by that."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _wait_for_child(program: Program) -> int:
    """The pid, here, of the first process in the new namespace."""
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    deadline_s = time.monotonic() + START_BUDGET_S
    while not (pids := children.read_text().split()):
        _check(program, deadline_s, "has no first process")
        time.sleep(POLL_S)
    return int(pids[0])


def _wait_for_runtime(node: Node) -> None:
    """Its socket appears below the first process's root: the machine sees no mounts of the node."""
    socket = Path(f"/proc/{node.pid}/root{RUNTIME_SOCKET}")
    deadline_s = time.monotonic() + START_BUDGET_S
    while not socket.exists():
        _check(node.program, deadline_s, "has no containerd")
        time.sleep(POLL_S)


def _check(program: Program, deadline_s: float, problem: str) -> None:
    if not program.is_running or time.monotonic() > deadline_s:
        raise StartError(f"{program.name} {problem}.\n{program.log_tail()}")
