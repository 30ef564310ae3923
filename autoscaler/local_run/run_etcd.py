"""etcd of a run: one member in the run folder, for the masters of its jobs.

`python -m autoscaler.etcd_server` finds or builds a server, runs it and starts a killed member again.  Here that
program is a process of the run like any other, started before the first master and ended after the last; if it is
killed itself, `supervise_etcd` starts it again on the same data.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.local.machine.pod_logs import describe_exit, read_tail
from autoscaler.clusters.local.machine.processes import Command, Processes, StartError
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.errors import PermanentError
from autoscaler.jobs.restart_policy import STEADY_AFTER_S, pause_s

KEY: Final = "etcd#1"
_READY_DEADLINE_S: Final = 600.0
"""Most of it is for building etcd, once in a machine's life."""

_STOP_DEADLINE_S: Final = 6.0
_POLL_S: Final = 0.05
_POLL_EVERY_S: Final = 0.2
_MOST_FAILED_STARTS: Final = 8
"""In a row, over a minute and a half, of one that has served before: a neighbour may fill the machine for a while."""


class EtcdUnavailableError(PermanentError):
    """The run has no etcd; the message holds the server's last log lines."""


class EtcdRefusedError(EtcdUnavailableError):
    """The server that `$EDL_ETCD` names does not serve: the user has to change the variable."""


async def start_etcd(
    processes: Processes, folder: RunFolder, log: Path, environment: Mapping[str, str], *, report: Callable[[str], None]
) -> str:
    """Start etcd; return its endpoints, Unix sockets, once it serves.  Raises EtcdUnavailableError."""
    program = (sys.executable, "-P", "-m", "autoscaler.etcd_server")
    argv = (*program, "--serve", str(folder.etcd), "--sockets", str(folder.sockets), "--demo")
    offset = _size_of(log)
    await processes.start(KEY, Command(argv=argv, env=environment, cwd=folder.root, log=log))
    last_line = ""
    try:
        async with asyncio.timeout(_READY_DEADLINE_S):
            while (endpoints := _try_read(log, offset)) is None:
                if not processes.is_running(KEY):
                    kind = EtcdRefusedError if environment.get("EDL_ETCD") else EtcdUnavailableError
                    raise kind(f"etcd did not start{read_tail(log, offset)}")
                last_line = _pass_on(log, offset, last_line, report)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        tail = read_tail(log, offset)
        raise EtcdUnavailableError(f"etcd was not ready after {_READY_DEADLINE_S:.0f} s{tail}") from None
    return endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdEvent:
    """Event of the server behind its keeper."""

    kind: str
    reason: str
    message: str


async def supervise_etcd(
    processes: Processes,
    log: Path,
    *,
    restart: Callable[[str], Awaitable[None]],
    on_event: Callable[[EtcdEvent], None],
) -> None:
    """Call `restart` with the reason whenever the keeper has ended, and `on_event` with its events; never ends.

    A start that fails is tried again, with longer pauses.  Raises what `restart` raises when that is of no use.
    """
    quick_ends, started_at_s, read = 0, time.monotonic(), _size_of(log)
    failed_starts = 0
    while True:
        await asyncio.sleep(_POLL_EVERY_S)
        events, read = read_events(log, read)
        for event in events:
            on_event(event)
        if processes.is_running(KEY):
            continue
        quick_ends = 1 if time.monotonic() - started_at_s >= STEADY_AFTER_S else quick_ends + 1
        await asyncio.sleep(pause_s(quick_ends))
        try:
            await restart(f"its process has ended{read_tail(log)}")
            failed_starts = 0
        except (EtcdUnavailableError, StartError) as error:
            failed_starts += 1
            if failed_starts == _MOST_FAILED_STARTS:
                raise
            on_event(EtcdEvent(kind="Failed", reason="NotStarted", message=f"{error}\ntried again"))
        started_at_s, read = time.monotonic(), _size_of(log)


def read_events(log: Path, offset: int) -> tuple[list[EtcdEvent], int]:
    """Return the keeper's events behind `offset`, and the offset to read on from."""
    size = _size_of(log)
    if size <= offset:
        return [], size  # nothing new, or its beginning was dropped (`pod_logs`)
    text = log.read_bytes()[offset:]
    whole = text[: text.rfind(b"\n") + 1]
    events = (_event_of(answer) for answer in _answers(whole.decode(errors="replace").splitlines()))
    return [event for event in events if event is not None], offset + len(whole)


def _event_of(answer: Mapping[str, Any]) -> EtcdEvent | None:
    match answer:
        case {"member": "ended", "code": code, "pause_s": int() | float() as pause}:
            exit_text = describe_exit(code) if isinstance(code, int) else "has ended"
            following = f"in {pause:.0f} s" if pause else "at once"
            message = f"its server {exit_text}\nstarts again on its data {following}"
            return EtcdEvent(kind="Exited", reason="Restarting", message=message)
        case {"member": "serves", "away_s": int() | float() as away}:
            message = f"its server serves again, after {away:.1f} s"
            return EtcdEvent(kind="Started", reason="Ready", message=message)
        case _:
            return None


async def stop_etcd(processes: Processes) -> None:
    """End etcd; a process that does not leave in time is killed with the run."""
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
    """Return the endpoints from the line of JSON that reports the server ready."""
    return next((",".join(one["endpoints"]) for one in _answers(_lines(log, offset)) if "endpoints" in one), None)


def _answers(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The lines of JSON among them."""
    for line in lines:
        if line.startswith("{"):
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if isinstance(content, dict):
                yield content


def _pass_on(log: Path, offset: int, before: str, report: Callable[[str], None]) -> str:
    """Show the user what it is doing (building takes a minute), each line once."""
    last = next((line for line in reversed(_lines(log, offset)) if line.startswith("etcd: ")), before)
    if last != before:
        report(last)
    return last


def _size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _lines(log: Path, offset: int) -> list[str]:
    """Lines of the log behind `offset`."""
    try:
        return log.read_bytes()[offset:].decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
