"""Answers that many ask for: each is made once, however many wait for it, and kept for a moment.

The problem: one answer about a large cluster takes a second of a core and some megabytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiohttp import web

T = TypeVar("T")


@dataclass(slots=True)
class _Made(Generic[T]):
    version: int
    task: asyncio.Task[T]


class SharedAnswers(Generic[T]):
    """Answers by key.  One is given again for `kept_s` seconds, as long as what it was made of has the same version.

    `most`: are made at a time.
    """

    def __init__(self, *, kept_s: float, most: int) -> None:
        self._kept_s = kept_s
        self._most = most
        self._made: dict[Hashable, _Made[T]] = {}

    async def get(self, key: Hashable, version: int, make: Callable[[], Awaitable[T]]) -> T:
        """Return the answer: one that is being made, one that was made of this version, or a new one.

        Whoever goes away leaves it to the others.  What `make` raises is raised to all who wait, and is not kept.

        Raises:
            web.HTTPServiceUnavailable: as many as are allowed are being made.
        """
        made = self._made.get(key)
        if made is None or (made.task.done() and made.version != version):
            if sum(not one.task.done() for one in self._made.values()) >= self._most:
                raise web.HTTPServiceUnavailable(text="Too much is asked at once; try again in a moment.\n")
            made = self._made[key] = _Made(version, asyncio.create_task(_made_by(make), name="page answer"))
            made.task.add_done_callback(lambda task: self._keep(key, task))
        try:
            return await asyncio.shield(made.task)
        except web.HTTPException as refusal:  # it is a response too, and one is sent once
            raise type(refusal)(text=refusal.text, headers=refusal.headers) from None

    async def close(self) -> None:
        """Cancel what is being made."""
        tasks = [one.task for one in self._made.values()]
        self._made.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._drop(key, task)
        else:
            task.get_loop().call_later(self._kept_s, self._drop, key, task)

    def _drop(self, key: Hashable, task: asyncio.Task[T]) -> None:
        made = self._made.get(key)
        if made is not None and made.task is task:
            del self._made[key]


async def _made_by(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
