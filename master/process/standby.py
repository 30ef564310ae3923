"""A standby: started and connected, it waits until the master at its place is dead (ADR 0202).

So a fail-over does not wait for an interpreter's start.  The parent that sees the master's process die sends SIGUSR1;
no other process does: a process that is stopped, hung or cut off is not dead.  The signal may come while the standby
still starts, since it was started with that signal blocked.  The standby is then the next master at the same address:
it gives back its predecessor's lease (`leader_terms`) and campaigns.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Final

from master.api.host.signals import TAKE_OVER
from master.errors import StoreUnavailableError
from master.store.store_port import StateStore

STORE_CHECK_EVERY_S: Final = 5.0  # at the store: the connection stays warm

log: Final = logging.getLogger(__name__)


async def stand_by(store: StateStore, end: asyncio.Event) -> bool:
    """Waits for the order: True to take over, False once `end` is set, which wins if both are.

    Raises StoreAccessError where the store refuses the user.
    """
    take_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(TAKE_OVER, take_over.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {TAKE_OVER})
    log.info("stands by")
    checks = asyncio.create_task(_keep_connected(store))
    signals = [asyncio.create_task(event.wait()) for event in (take_over, end)]
    try:
        await asyncio.wait([*signals, checks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*signals, checks):
            task.cancel()
        await asyncio.gather(*signals, checks, return_exceptions=True)
        loop.remove_signal_handler(TAKE_OVER)
        signal.signal(TAKE_OVER, signal.SIG_IGN)
    if not checks.cancelled():
        checks.result()
    if end.is_set():
        log.info("asked to end")
        return False
    log.info("takes over: the master before it is dead")
    return True


async def _keep_connected(store: StateStore) -> None:
    while True:
        try:
            await store.read_leader()
        except StoreUnavailableError as error:
            log.debug("standing by: %s", error)
        await asyncio.sleep(STORE_CHECK_EVERY_S)
