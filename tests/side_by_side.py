"""Every test and `make lint`, beside one another: `make test` is `python -m tests.side_by_side [--quick]`.

Tests of the cluster and of processes mostly wait; unit tests, properties and the protocol compute.  Each part is a
pytest process: the parts that wait share the machine, those that compute give way to them (their priority is lower),
since they measure real time.  Every test is in one part, whatever its folder and marks: see `parts`.  `make lint` is
one more that computes.

At the end each part says which of its files and tests took longest, and how much CPU time it used: the run as a whole
has a budget (docs/testing.md).

Exit code 0: all passed; 1: not so; 130, 143: interrupted, told to end.  However it ends, no process of a part is left.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.etcd_members import DIE_WITH_PARENT
from tests.slowest import MARK

LEAVE_BUDGET_S: Final = 30.0  # for an interrupted pytest to take down its fixtures
POLL_S: Final = 0.1
LOWER: Final = 10  # the priority (nice) of what only computes, by so much
LOWEST: Final = 19
NO_TESTS: Final = 5  # pytest's exit code when nothing was chosen
GO_SETTINGS: Final[Mapping[str, str]] = {"GOGC": "400"}
"""Of the programs in Go (etcd, the control plane, helm): memory, of which there is enough, in place of CPU time."""
OF_CLUSTER: Final = ("tests/cluster", "tests/chart")
"""Where the mark `cluster` may stand (tests/conftest.py refuses it elsewhere): no other folder is read for it."""
OF_PROCESSES: Final = ("tests/integration", "tests/chaos", "tests/browser")
OF_PROTOCOL: Final = "tests/protocol"
OF_MEMBERS: Final = tuple(f"tests/integration/{name}" for name in ("master", "store", "trainer_sdk"))
"""Masters, trainers and servers, and their etcd; the others are of whole runs and of what is around them."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_WRONG: Final = re.compile(r"(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process; its command begins with the path of a program."""

    name: str
    command: tuple[str, ...]
    gives_way: bool = False


def parts(*, is_quick: bool) -> tuple[Part, ...]:
    """By the mark `cluster` first, then by folder: what is in no named folder computes.

    Tests of processes are two parts, since they wait half of their time: one waits while the other one works.  What
    computes is two as well: when the others have ended, much of it is left, and one process would leave a core idle.
    """
    colour = f"--color={'yes' if _is_terminal() else 'no'}"
    pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.slowest", colour)
    others = (*pytest, "-m", "not cluster")
    cluster = Part(name="cluster", command=(*pytest, "-m", "cluster", *OF_CLUSTER))
    return (
        *(() if is_quick else (cluster,)),
        Part(name="members", command=(*others, *OF_MEMBERS)),
        Part(name="runs", command=(*others, *_without(OF_MEMBERS), *OF_PROCESSES)),
        Part(name="protocol", command=(*others, OF_PROTOCOL), gives_way=True),
        Part(name="computing", command=(*others, *_without((*OF_PROCESSES, OF_PROTOCOL)), "tests"), gives_way=True),
    )


def lint() -> Part:
    """As fatal as a test.  What make was told of variables (VENV) is in the environment."""
    command = (shutil.which("make") or "make", "--no-print-directory", "lint")
    return Part(name="lint", command=command, gives_way=True)


def outside_parts(marked: Iterable[str]) -> list[str]:
    """Those node ids of tests with the mark `cluster` that no part would run."""
    folders = tuple(f"{folder}/" for folder in OF_CLUSTER)
    return [test for test in marked if not test.startswith(folders)]


def _without(folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"--ignore={folder}" for folder in folders)


@dataclass(slots=True, kw_only=True)
class Running:
    """A part that was begun: what it last said, which of its tests went wrong, and which took longest."""

    part: Part
    process: subprocess.Popen[str]
    reader: threading.Thread | None = None
    last: str = ""
    wrong: list[str] = field(default_factory=list)
    slowest: list[str] = field(default_factory=list)
    took_s: float = 0.0
    cpu_s: float = 0.0

    def listen(self, say: Callable[[str], None]) -> None:
        """Passes on each line, until nobody can write one any more."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                bare = _COLOUR.sub("", line).strip()
                if bare.startswith(MARK):
                    self.slowest.append(bare.removeprefix(MARK).strip())
                    continue
                self.last = bare.strip("= ") or self.last
                if found := _WRONG.match(bare):
                    self.wrong.append(found[1])
                with suppress(OSError):  # nobody listens any more: the part must not stand still for that
                    say(f"{self.part.name:9} | {line.rstrip()}")

    def send(self, number: signal.Signals) -> None:
        """To the process and to those that it has not set apart."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class SideBySide:
    """Runs parts, from the main thread."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._running: list[Running] = []
        self._told: signal.Signals | None = None
        self._kill_at_s = float("inf")

    def run(self, these: Sequence[Part]) -> int:
        """The exit code.  Afterwards none of their processes is left."""
        before = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for part in these:
                self._start(part)
            self._wait()
        finally:
            for one in self._running:
                one.send(signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)
        self._tell()
        codes = {one.process.wait() for one in self._running}
        if self._told is not None:
            return 128 + self._told
        return 0 if codes - {NO_TESTS} == {0} else 1

    def _start(self, part: Part) -> None:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), *part.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**GO_SETTINGS, **os.environ, "COLUMNS": str(shutil.get_terminal_size((120, 24)).columns - 12)},
            start_new_session=True,  # an interrupt at the terminal reaches it once, through us
        )
        one = Running(part=part, process=process)
        self._running.append(one)
        if part.gives_way:
            _lower(process.pid)
        one.reader = threading.Thread(target=one.listen, args=(self._say,), daemon=True)
        one.reader.start()

    def _wait(self) -> None:
        began_s = time.monotonic()
        waiting = list(self._running)
        while waiting:
            for one in [one for one in waiting if _has_ended(one)]:
                waiting.remove(one)
                one.took_s = time.monotonic() - began_s
                one.send(signal.SIGKILL)  # what it left behind would hold its output open
                if one.reader is not None:
                    one.reader.join(LEAVE_BUDGET_S)
            if time.monotonic() > self._kill_at_s:
                for one in waiting:
                    one.send(signal.SIGKILL)
            time.sleep(POLL_S)

    def _interrupt(self, number: int, _frame: object) -> None:
        """The first time they may tidy up; the second time there is no patience."""
        again = self._told is not None
        self._told = self._told or signal.Signals(number)
        self._kill_at_s = 0.0 if again else time.monotonic() + LEAVE_BUDGET_S
        for one in self._running:
            one.send(signal.SIGINT)

    def _tell(self) -> None:
        for one in self._running:
            for line in one.slowest:
                self._say(f"{one.part.name:9} slowest {line}")
        for one in self._running:
            took = f"{one.took_s:5.0f} s, CPU {one.cpu_s:5.0f} s"
            self._say(f"{one.part.name:9} {took}  code {one.process.wait()}  {one.last}")
        wrong = [name for one in self._running for name in one.wrong]
        if wrong:
            self._say(f"alone: {Path(sys.executable).parent}/pytest {shlex.join(wrong)}")


def _has_ended(one: Running) -> bool:
    """Afterwards `cpu_s` of one that has is the CPU time of its process and of those that it has waited for."""
    before_s = _children_cpu_s()
    if one.process.poll() is None:
        return False
    one.cpu_s = _children_cpu_s() - before_s
    return True


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lower(pid: int) -> None:
    """By priority, and on a Linux that weighs whole sessions against each other (autogroup) that of its session too."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + LOWER
    os.setpriority(os.PRIO_PROCESS, pid, niceness)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(min(niceness, LOWEST)), encoding="ascii")


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.side_by_side", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without those on a Kubernetes control plane")
    arguments = parser.parse_args()
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    return SideBySide(say).run((lint(), *parts(is_quick=arguments.quick)))


if __name__ == "__main__":
    sys.exit(main())
