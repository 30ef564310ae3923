"""Pod supervisor: the process that starts and reaps all pods of a run, and kills them when the run dies.

It is a process of its own for three reasons.  It has one thread, so forking is safe, which it is not beside gRPC's
threads.  It is the pods' parent and sub-reaper, so everything that a pod starts ends with the pod, also in a session of
its own; only a process that clears its environment as well lives until the run ends.  And the end of its socket tells
it that the run has ended, `kill -9` included.  It also copies what pods write to their logs (`pod_output`).

It speaks JSON lines over the inherited descriptor named on its command line; `processes` is the other end.  It decides
nothing: graces, restarts and readiness are the run's.

    -> {"op": "start", "key", "argv", "env", "cwd", "log"}      <- {"key", "pid"} | {"key", "error", "errno"}
    -> {"op": "signal", "key", "signal", "group"}               <- {"key", "code", "pid"} when its processes are gone
                                                                <- {"key", "unwritten"}: its log cannot be written
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.local.machine.pod_output import PodOutput
from master.api.host.fd_limits import raise_limit

_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_READ_BYTES: Final = 1 << 16
_LONGEST_LINE_BYTES: Final = 4 << 20
_CLEAR_ROUNDS: Final = 10_000
"""Rounds of killing what pods left behind before giving up: a fork bomb is not chased for ever."""

_MARK: Final = "EDL_PROCESS_KEY"
"""Variable in the environment of everything that a pod starts; it names the pod of an orphan."""

_KIN_ROUNDS: Final = 20
_KIN_PAUSE_S: Final = 0.005
"""Between two rounds: a killed process takes a moment to be gone.  Other pods wait meanwhile, so it is short."""


def main() -> int:
    """Serve the descriptor in argv[1] until it is closed; no pod is left afterwards."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pods_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit()  # each pod that runs has two descriptors here
    with socket.socket(fileno=int(sys.argv[1])) as run:
        PodSupervisor(run, pods_limit).serve()
    return 0


class PodSupervisor:
    """Children by key, and the connection to the run."""

    def __init__(self, run: socket.socket, pods_limit: tuple[int, int]) -> None:
        """`pods_limit`: soft and hard limit of a pod's open files."""
        self._run = run
        self._pods_limit = pods_limit
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._keys: dict[int, str] = {}
        self._outputs: dict[str, PodOutput] = {}
        self._selector = selectors.DefaultSelector()
        self._buffer = b""
        self._libc = ctypes.CDLL(None)

    def serve(self) -> None:
        """Carry out orders and report ends until the run closes the connection."""
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with self._selector, woken, wake:
            self._selector.register(self._run, selectors.EVENT_READ)
            self._selector.register(woken, selectors.EVENT_READ)
            try:
                while self._serve_once(woken):
                    pass
            except (OSError, ValueError) as error:
                print(f"pod supervisor: {error}", file=sys.stderr)  # noqa: T201 - its stderr is the run's log
            finally:
                self._clear()
                for output in self._outputs.values():
                    output.copy_rest()
                    output.close()
                signal.set_wakeup_fd(-1)

    def _serve_once(self, woken: socket.socket) -> bool:
        for key, _ in self._selector.select():
            if isinstance(key.fileobj, PodOutput):
                self._copy(key.data, key.fileobj)
            elif key.fileobj is woken:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(_READ_BYTES)
            elif not self._read():
                return False
        self._reap()
        return True

    def _read(self) -> bool:
        data = self._run.recv(_READ_BYTES)
        if not data:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _LONGEST_LINE_BYTES:
            raise ValueError("a line from the run has no end")
        for line in lines:
            self._carry_out(json.loads(line))
        return True

    def _carry_out(self, order: dict[str, Any]) -> None:
        key = order["key"]
        if order["op"] == "start":
            try:
                self._start(key, order)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._report(key=key, error=str(error), errno=getattr(error, "errno", None))
        elif key in self._children:
            send = os.killpg if order["group"] else os.kill
            with contextlib.suppress(ProcessLookupError):
                send(self._children[key].pid, order["signal"])

    def _start(self, key: str, order: dict[str, Any]) -> None:
        output = PodOutput(order["log"])
        try:
            child = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=output.pod_end,
                stderr=subprocess.STDOUT,
                env=order["env"] | {_MARK: key},
                cwd=order["cwd"],
                start_new_session=True,
                preexec_fn=self._die_with_parent,  # noqa: PLW1509 - one thread
            )
        except BaseException:
            output.close()
            raise
        finally:
            output.close_pod_end()
        self._children[key] = child
        self._keys[child.pid] = key
        self._outputs[key] = output
        self._selector.register(output, selectors.EVENT_READ, data=key)
        self._report(key=key, pid=child.pid)

    def _copy(self, key: str, output: PodOutput) -> None:
        """Copy some of the pod's output to its log."""
        try:
            output.copy()
        except EOFError:  # the pod has closed it, or has ended
            self._selector.unregister(output)
            output.close()
            del self._outputs[key]
            return
        self._tell_unwritten(key, output)

    def _tell_unwritten(self, key: str, output: PodOutput) -> None:
        if output.problem and not output.is_told:
            output.is_told = True
            self._report(key=key, unwritten=f"{output.path} cannot be written: {output.problem}")

    def _die_with_parent(self) -> None:
        """In the child: have the kernel kill the pod when the supervisor is killed; the run's limit of files holds."""
        self._libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._pods_limit)

    def _reap(self) -> None:
        """Report each pod whose first process has ended, after killing what it left behind."""
        while (info := _try_wait()) is not None:
            key = self._keys.get(info)
            if key is None:
                os.waitpid(info, 0)  # an orphan that this process inherited
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(info, signal.SIGKILL)  # the zombie still holds the number, so no stranger can have it
            self._end_kin(key)
            if (output := self._outputs.pop(key, None)) is not None:
                self._selector.unregister(output)
                output.copy_rest()  # whoever hears of the end reads the log
                output.close()  # a process that has escaped `_end_kin` keeps no descriptor of the other pods
                self._tell_unwritten(key, output)
            child = self._children.pop(key)
            del self._keys[info]
            self._report(key=key, pid=info, code=child.wait())

    def _end_kin(self, key: str) -> None:
        """Kill what the pod left outside its group: orphans of this process by now, and their children."""
        mark = f"{_MARK}={key}".encode()
        for _ in range(_KIN_ROUNDS):
            orphans = [pid for pid in _children_of(os.getpid()) if pid not in self._keys]
            kin = [pid for orphan in orphans for pid in _family_of(orphan) if mark in _environment_of(pid)]
            if not kin:
                return
            for pid in kin:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_KIN_PAUSE_S)

    def _clear(self) -> None:
        """Kill every pod and everything that pods started, also in sessions of their own."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        for _ in range(_CLEAR_ROUNDS):
            for pid in _children_of(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)  # its own children come to this process, and to the next round
            except ChildProcessError:
                return

    def _report(self, **message: object) -> None:
        self._run.sendall(json.dumps(message).encode() + b"\n")


def _try_wait() -> int | None:
    """The pid of a child that has ended and is not yet reaped; None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


def _children_of(parent: int) -> list[int]:
    """Child processes of all threads of the process."""
    children: list[int] = []
    with contextlib.suppress(OSError):  # no descriptor is left, say: other pods go on, and the rest ends with the run
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children += map(int, listing.read_text(encoding="ascii").split())
    return children


def _family_of(pid: int) -> Iterator[int]:
    """The process and all its descendants."""
    yield pid
    for child in _children_of(pid):
        yield from _family_of(child)


def _environment_of(pid: int) -> list[bytes]:
    """Environment with which the process was started; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
