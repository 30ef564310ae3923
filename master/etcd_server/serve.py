"""One etcd member for a run on this machine, as a process of its own: kept alive until SIGTERM.

For callers that may not import this package (`edl run` starts it as a command).  Standard output gets one line of JSON
when it serves: {"endpoints": [...], "version": "..."}.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from master.errors import EtcdStartError, PortInUseError
from master.etcd_server.cluster import EtcdMember, start_etcd
from master.etcd_server.finder import find_etcd

LOOK_EVERY_S: Final = 0.2
"""A killed member is back within this and its own start of less than 2 s: shorter than a master's lease."""


async def serve_member(folder: Path, *, allow_demo_version: bool, say: Callable[[str], None]) -> None:
    """Find or build etcd, serve one member on data in `folder`, and bring it back when it dies; ends on SIGTERM.

    Raises UnusableEtcdError, EtcdStartError, PortInUseError.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    binary = await asyncio.to_thread(find_etcd, allow_demo_version=allow_demo_version, environ=os.environ, say=say)
    async with start_etcd(binary, folder) as etcd:
        ready = {"endpoints": list(etcd.endpoints), "version": str(binary.version)}
        print(json.dumps(ready), flush=True)  # noqa: T201  the answer
        while not stop.is_set():
            if not _runs(etcd.members[0]):
                say("the member has died; it starts again on its data")
                await _restart(etcd.members[0], say)
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await stop.wait()
            except TimeoutError:
                continue


def _runs(member: EtcdMember) -> bool:
    try:
        return member.pid > 0
    except EtcdStartError:
        return False


async def _restart(member: EtcdMember, say: Callable[[str], None]) -> None:
    try:
        await member.start()
    except PortInUseError as error:  # the dead member's last connections; the next look tries again
        say(str(error))
