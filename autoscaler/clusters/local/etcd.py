"""The run's own etcd: one member in the run folder, for the masters of its jobs.

Finding or building a server is `python -m master.etcd_server`'s business; here it is a process of the run like any
other, started before the first master and ended after the last.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from autoscaler.clusters.local.logtail import read_tail
from autoscaler.clusters.local.processes import Command, Processes
from autoscaler.errors import PermanentError

KEY: Final = "etcd#1"
_READY_DEADLINE_S: Final = 600.0
"""Most of it is for building etcd, once in a machine's life."""

_STOP_DEADLINE_S: Final = 6.0
_POLL_S: Final = 0.05


class EtcdUnavailableError(PermanentError):
    """The run has no etcd; the message is the server's last words."""


async def start_etcd(
    processes: Processes, folder: Path, log: Path, environment: Mapping[str, str], *, say: Callable[[str], None]
) -> str:
    """Start it; its endpoints once it serves.  Raises EtcdUnavailableError."""
    argv = (sys.executable, "-m", "master.etcd_server", "--serve", str(folder), "--demo")
    await processes.start(KEY, Command(argv=argv, env=environment, cwd=folder.parent, log=log))
    told = ""
    try:
        async with asyncio.timeout(_READY_DEADLINE_S):
            while (endpoints := _try_read(log)) is None:
                if not processes.is_running(KEY):
                    raise EtcdUnavailableError(f"etcd did not start{read_tail(log)}")
                told = _pass_on(log, told, say)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise EtcdUnavailableError(f"etcd was not ready after {_READY_DEADLINE_S:.0f} s{read_tail(log)}") from None
    return endpoints


async def stop_etcd(processes: Processes) -> None:
    """End it; what does not leave in time is killed with the run."""
    if not processes.is_running(KEY):
        return
    processes.signal(KEY, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_DEADLINE_S):
            while processes.is_running(KEY):  # noqa: ASYNC110 - a few polls, once, at the end of a run
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        processes.signal(KEY, signal.SIGKILL)


def _try_read(log: Path) -> str | None:
    """The endpoints, from the line of JSON that says that it serves."""
    for line in _lines(log):
        if line.startswith("{"):
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if isinstance(content, dict) and "endpoints" in content:
                return ",".join(content["endpoints"])
    return None


def _pass_on(log: Path, told: str, say: Callable[[str], None]) -> str:
    """Tell the user what it is doing (building takes a minute), each line once."""
    last = next((line for line in reversed(_lines(log)) if line.startswith("etcd: ")), told)
    if last != told:
        say(last)
    return last


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
