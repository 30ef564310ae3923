"""One etcd member for a run on this machine, as a process of its own: kept alive until SIGTERM.

For callers that may not import this package (`edl run` starts it as a command).  Standard output gets a line of JSON
when it serves, and whenever it has ended and serves again:

    {"endpoints": [...], "version": "..."}
    {"member": "ended", "code": -9, "pause_s": 0.0}
    {"member": "serves", "away_s": 0.6}
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.errors import EtcdPortInUseError, EtcdStartError
from autoscaler.etcd_server.etcd_members import EtcdMember, start_etcd
from autoscaler.etcd_server.finder import find_etcd

POLL_EVERY_S: Final = 0.2
"""A killed member is back within this and its own start of less than 2 s: shorter than a master's lease."""
STEADY_AFTER_S: Final = 5.0  # one that ran so long has started well
FREE_RESTARTS: Final = 3  # kills from outside, as in a test, are followed at once
LONGEST_PAUSE_S: Final = 30.0


async def serve_member(
    folder: Path, *, sockets: Path | None, allow_demo_version: bool, report: Callable[[str], None]
) -> None:
    """Find or build etcd, serve one member on data in `folder`, and bring it back when it dies; ends on SIGTERM.

    `sockets`: the private folder in which it listens.

    Raises UnusableEtcdError, EtcdStartError, EtcdPortInUseError.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    binary = await asyncio.to_thread(
        find_etcd, allow_demo_version=allow_demo_version, environ=os.environ, report=report
    )
    async with start_etcd(binary, folder, sockets=sockets) as etcd:
        ready = {"endpoints": list(etcd.endpoints), "version": str(binary.version)}
        _tell(**ready)
        await _keep_alive(etcd.members[0], stop, report)


async def _keep_alive(member: EtcdMember, stop: asyncio.Event, report: Callable[[str], None]) -> None:
    """Restart the member until `stop` is set: at once, with growing pauses if it keeps failing (a full disk)."""
    quick_ends, started_s = 0, time.monotonic()
    away_since_s: float | None = None
    while not await _is_set_within(stop, POLL_EVERY_S):
        now_s = time.monotonic()
        if _runs(member):
            if away_since_s is not None and await _serves(member):
                _tell(member="serves", away_s=round(now_s - away_since_s, 1))
                away_since_s = None
            continue
        quick_ends = 0 if now_s - started_s >= STEADY_AFTER_S else quick_ends + 1
        pause_s = restart_pause_s(quick_ends)
        report("the etcd member has died and restarts with its data" + (f" in {pause_s:.0f} s" if pause_s else ""))
        _tell(member="ended", code=member.exit_code, pause_s=pause_s)
        away_since_s = now_s if away_since_s is None else away_since_s
        if pause_s and await _is_set_within(stop, pause_s):
            return
        started_s = time.monotonic()
        await _restart(member, report)


def _tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)  # noqa: T201  the answer


async def _serves(member: EtcdMember) -> bool:
    try:
        async with asyncio.timeout(POLL_EVERY_S):
            return await member.is_healthy()
    except TimeoutError:
        return False  # paused or busy: checked again


def restart_pause_s(quick_ends: int) -> float:
    """Pause before a restart, by the number of quick ends in a row: 0, 0, 0, 1, 2, 4, ... up to 30 s."""
    return 0.0 if quick_ends < FREE_RESTARTS else min(LONGEST_PAUSE_S, 2.0 ** min(10, quick_ends - FREE_RESTARTS))


async def _is_set_within(stop: asyncio.Event, time_s: float) -> bool:
    try:
        async with asyncio.timeout(time_s):
            return await stop.wait()
    except TimeoutError:
        return False


def _runs(member: EtcdMember) -> bool:
    try:
        return member.pid > 0
    except EtcdStartError:
        return False


async def _restart(member: EtcdMember, report: Callable[[str], None]) -> None:
    try:
        await member.start()
    except EtcdPortInUseError as error:  # the dead member's last connections; the next check retries
        report(str(error))
