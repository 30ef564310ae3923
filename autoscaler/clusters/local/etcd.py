"""The run's own etcd: one member in the run folder, for the masters of its jobs.

Finding or building a server is `python -m master.etcd_server`'s business; here it is a process of the run like any
other, started before the first master and ended after the last.  That process brings a killed member back itself;
should it be killed too, `keep_etcd` starts it again on the same data.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from autoscaler.clusters.local.logtail import read_tail
from autoscaler.clusters.local.processes import Command, Processes
from autoscaler.errors import PermanentError
from autoscaler.jobs.backoff import STEADY_AFTER_S, pause_s

KEY: Final = "etcd#1"
_READY_DEADLINE_S: Final = 600.0
"""Most of it is for building etcd, once in a machine's life."""

_STOP_DEADLINE_S: Final = 6.0
_POLL_S: Final = 0.05
_LOOK_EVERY_S: Final = 0.2


class EtcdUnavailableError(PermanentError):
    """The run has no etcd; the message is the server's last words."""


class EtcdRefusedError(EtcdUnavailableError):
    """Nor can it have one before the user changes `$EDL_ETCD`, which names what does not serve."""


async def start_etcd(
    processes: Processes, folder: Path, log: Path, environment: Mapping[str, str], *, say: Callable[[str], None]
) -> str:
    """Start it; its endpoints once it serves.  Raises EtcdUnavailableError."""
    argv = (sys.executable, "-P", "-m", "master.etcd_server", "--serve", str(folder), "--demo")
    offset = _size_of(log)
    await processes.start(KEY, Command(argv=argv, env=environment, cwd=folder.parent, log=log))
    told = ""
    try:
        async with asyncio.timeout(_READY_DEADLINE_S):
            while (endpoints := _try_read(log, offset)) is None:
                if not processes.is_running(KEY):
                    kind = EtcdRefusedError if environment.get("EDL_ETCD") else EtcdUnavailableError
                    raise kind(f"etcd did not start{read_tail(log, offset)}")
                told = _pass_on(log, offset, told, say)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        last_words = read_tail(log, offset)
        raise EtcdUnavailableError(f"etcd was not ready after {_READY_DEADLINE_S:.0f} s{last_words}") from None
    return endpoints


async def keep_etcd(processes: Processes, log: Path, *, restart: Callable[[str], Awaitable[None]]) -> None:
    """Call `restart` with the story whenever the process has ended; never ends.  Raises what `restart` raises."""
    quick_ends, started_at_s = 0, time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        if processes.is_running(KEY):
            continue
        quick_ends = 1 if time.monotonic() - started_at_s >= STEADY_AFTER_S else quick_ends + 1
        await asyncio.sleep(pause_s(quick_ends))
        await restart(f"its process has ended{read_tail(log)}")
        started_at_s = time.monotonic()


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


def _try_read(log: Path, offset: int) -> str | None:
    """The endpoints, from the line of JSON that says that it serves."""
    for line in _lines(log, offset):
        if line.startswith("{"):
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if isinstance(content, dict) and "endpoints" in content:
                return ",".join(content["endpoints"])
    return None


def _pass_on(log: Path, offset: int, told: str, say: Callable[[str], None]) -> str:
    """Tell the user what it is doing (building takes a minute), each line once."""
    last = next((line for line in reversed(_lines(log, offset)) if line.startswith("etcd: ")), told)
    if last != told:
        say(last)
    return last


def _size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _lines(log: Path, offset: int) -> list[str]:
    """Those behind `offset`."""
    try:
        return log.read_bytes()[offset:].decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
