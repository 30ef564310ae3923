"""When a master's process ends by itself."""

import asyncio
import os

from master import __main__ as program


async def test_a_master_goes_on_while_whoever_started_it_lives(monkeypatch):
    """It looks now and then; when the parent is another one, nobody is left to end it."""
    looks = []

    def parent():
        looks.append(1)
        return 7 if len(looks) < 5 else 1

    monkeypatch.setattr(program, "PARENT_CHECK_S", 0.0)
    monkeypatch.setattr(os, "getppid", parent)
    await program._wait_for_end(asyncio.Event(), 7)
    assert len(looks) == 5


async def test_a_master_that_nobody_watches_over_waits_to_be_asked():
    end = asyncio.Event()
    waiting = asyncio.create_task(program._wait_for_end(end, None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    end.set()
    await waiting
