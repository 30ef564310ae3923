"""Client of the pod supervisor: starts processes, sends them signals, and reports their ends.

`pod_supervisor` is the process that owns them; this module keeps the connection to it.  Nothing here knows jobs or
nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from autoscaler.errors import PermanentError

log: Final = logging.getLogger(__name__)

_ANSWER_DEADLINE_S: Final = 20.0
_LEAVE_DEADLINE_S: Final = 5.0
_LONGEST_LINE_BYTES: Final = 1 << 16
NO_ROOM: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT})
"""No task, memory, descriptor or place for the pod's files is left, whatever was to be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Command line, environment and folder of one process.

    `log` takes standard output and error; what it cannot take, as on a full disk, is dropped and told in the run's log.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """End of all processes of `key`.  `code` is negative for a signal, as Python has it."""

    key: str
    pid: int
    code: int


class SupervisorLostError(PermanentError):
    """The pod supervisor has died, and the pods with it."""


class StartError(PermanentError):
    """The command could not be run; the message is the operating system's."""


class MachineFullError(StartError):
    """The machine has no room for another process now, for whatever reason; the command is not at fault."""


class Processes:
    """Processes of all pods.  An async context: at its end every process is killed.

    `on_end` is called in the event loop once for every process that started.  `on_lost` is called when no
    more ends can be reported: the supervisor has died, or `on_end` has failed.
    """

    def __init__(
        self, *, on_end: Callable[[ProcessEnd], None], on_lost: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self._on_end = on_end
        self._on_lost = on_lost
        self._starting: dict[str, asyncio.Future[int]] = {}
        self._running: dict[str, int] = {}
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._is_closing = False

    async def __aenter__(self) -> Self:
        mine, theirs = socket.socketpair()
        with theirs:
            self._supervisor = subprocess.Popen(  # noqa: ASYNC220 - once, a few ms, and it must have no asyncio watcher
                [sys.executable, "-P", "-m", "autoscaler.clusters.local.machine.pod_supervisor", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the run, which then stops the pods in order
            )
        reader, self._writer = await asyncio.open_connection(sock=mine, limit=_LONGEST_LINE_BYTES)
        self._reader = asyncio.create_task(self._read(reader), name="supervisor-wire")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        assert self._writer is not None
        assert self._reader is not None
        assert self._supervisor is not None
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        try:
            await asyncio.to_thread(self._supervisor.wait, _LEAVE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()  # its death is the pods' death
            await asyncio.to_thread(self._supervisor.wait)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        assert self._supervisor is not None
        return self._supervisor.pid

    async def start(self, key: str, command: Command) -> int:
        """Start the command under a key that nothing else has; return its pid.

        Raises StartError, MachineFullError, SupervisorLostError.
        """
        if key in self._running or key in self._starting:
            raise ValueError(f"{key} runs already")
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._starting[key] = started
        order = {
            "op": "start",
            "key": key,
            "argv": list(command.argv),
            "env": dict(command.env),
            "cwd": str(command.cwd),
            "log": str(command.log),
        }
        try:
            self._send(order)
            async with asyncio.timeout(_ANSWER_DEADLINE_S):
                return await started
        except TimeoutError:
            raise SupervisorLostError(f"no answer from the supervisor for {_ANSWER_DEADLINE_S:.0f} s") from None
        finally:
            self._starting.pop(key, None)

    def pid_of(self, key: str) -> int:
        """Process id of the first process of the key, which has started."""
        return self._running[key]

    def is_running(self, key: str) -> bool:
        """True while any process of the key may still exist."""
        return key in self._running

    def signal(self, key: str, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended already.

        SIGTERM goes to the first process alone, as in a container: what it does about its own children, such as
        data loader workers, is its business.  Every other signal goes to the whole group.
        """
        if key in self._running:
            is_group = number is not signal.SIGTERM
            self._send({"op": "signal", "key": key, "signal": int(number), "group": is_group})

    def end(self, key: str) -> None:
        """Kill all processes of the key, also of one that is just starting; an unknown key is ignored."""
        self._send({"op": "signal", "key": key, "signal": int(signal.SIGKILL), "group": True})

    def _send(self, order: Mapping[str, Any]) -> None:
        assert self._writer is not None
        if self._writer.is_closing():
            raise SupervisorLostError("the supervisor has gone")
        self._writer.write(json.dumps(order).encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    self._take(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the outermost shell of this task: nobody awaits it before the end
            self._on_lost(error)
            return
        if self._is_closing:
            return
        for pid in self._running.values():  # the first processes are dead; what they started may not be
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for started in self._starting.values():
            if not started.done():
                started.set_exception(SupervisorLostError("the supervisor has gone"))
        self._on_lost(
            SupervisorLostError("the process that owns the pods was killed, and the pods with it; run it again")
        )

    def _take(self, message: Mapping[str, Any]) -> None:
        key = message["key"]
        started = self._starting.get(key)
        if "code" in message:
            self._running.pop(key, None)
            self._on_end(ProcessEnd(key=key, pid=message["pid"], code=message["code"]))
        elif "unwritten" in message:
            log.warning("%s; its process goes on, and lines are missing there", message["unwritten"])
        elif "error" in message:
            if started is not None and not started.done():
                kind = MachineFullError if message.get("errno") in NO_ROOM else StartError
                started.set_exception(kind(message["error"]))
        else:
            self._running[key] = message["pid"]
            if started is not None and not started.done():
                started.set_result(message["pid"])
