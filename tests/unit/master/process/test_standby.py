"""What a master that stands by does when it is told both to take over and to end (ADR 0202)."""

import asyncio
import signal
import threading

import pytest

from master.api.host.signals import TAKE_OVER
from master.process.standby import stand_by
from master.store.memory_store import MemoryCluster


@pytest.fixture
def told():
    """The order waits already, blocked, as for a process that is still starting."""
    before = signal.getsignal(TAKE_OVER)
    signal.pthread_sigmask(signal.SIG_BLOCK, {TAKE_OVER})
    signal.pthread_kill(threading.get_ident(), TAKE_OVER)  # no other thread has blocked it
    yield
    signal.signal(TAKE_OVER, before)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("is_asked_to_end", [False, True])
async def test_who_is_asked_to_end_takes_nothing_over(is_asked_to_end):
    """It took over, deaf to SIGTERM, was killed at its grace, and its lease ran its time."""
    end = asyncio.Event()
    if is_asked_to_end:
        asyncio.get_running_loop().call_soon(end.set)
    is_next = await asyncio.wait_for(stand_by(MemoryCluster().store("digits"), end), 60)
    assert is_next is not is_asked_to_end
