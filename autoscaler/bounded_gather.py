"""`gather_bounded`: `asyncio.gather` with at most `at_once` awaitables in flight.

A failed write says nothing about the next one, so all are tried and the first error is raised at the end; a
level-triggered caller repeats what failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

WorkResult = TypeVar("WorkResult")


async def gather_bounded(works: Iterable[Callable[[], Awaitable[WorkResult]]], *, at_once: int) -> list[WorkResult]:
    """Do all works, begun in order and `at_once` at a time; return their results in order.

    When all have ended, the first error in order is raised, if there was one.  A cancelled gather cancels what is under
    way and begins nothing more.
    """
    turn = asyncio.Semaphore(at_once)

    async def run_one(work: Callable[[], Awaitable[WorkResult]]) -> WorkResult:
        async with turn:
            return await work()

    answers = await asyncio.gather(*(run_one(work) for work in works), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
