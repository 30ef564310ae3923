"""Request that a run in the foreground ends, and what makes one: a signal, or an owner that has gone."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = {
    signal.SIGINT: "Ctrl-C (SIGINT)",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "its terminal was closed (SIGHUP)",
}
"""Signals that end a run, and how its events name them."""


class StopRequest:
    """The wish that the run ends, and who had it: the first one's reason stays, for the run's events."""

    def __init__(self) -> None:
        self._wished = asyncio.Event()
        self.why = ""

    @property
    def is_made(self) -> bool:
        return self._wished.is_set()

    def make(self, why: str) -> None:
        self.why = self.why or why
        self._wished.set()

    async def wait(self) -> str:
        """Return the reason, once there is one."""
        await self._wished.wait()
        return self.why


@contextmanager
def stop_on_signals(stop: StopRequest, kill: asyncio.Event) -> Iterator[None]:
    """Make the request at a signal, inside the block; set `kill` at a second one."""

    def handle_signal(why: str) -> None:
        if stop.is_made:
            kill.set()
        stop.make(why)

    loop = asyncio.get_running_loop()
    for number, why in SIGNALS.items():
        loop.add_signal_handler(number, handle_signal, why)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def is_input_closed() -> bool:
    """Whether standard input, a pipe of which nothing is read, has closed."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


@contextmanager
def stop_on_closed_input(stop: StopRequest, *, is_watched: bool) -> Iterator[None]:
    """Make the request once standard input closes."""
    if not is_watched:
        yield
        return
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.make("the owner closed its standard input")

    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
