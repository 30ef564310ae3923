"""Several things done at a time: never more than a few, and each of them whatever becomes of the others.

What one write meets says nothing about the next.  Whoever is level-triggered wants all of them tried and then to be
told; what is left undone is found again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

WorkResult = TypeVar("WorkResult")


async def gather_bounded(works: Iterable[Callable[[], Awaitable[WorkResult]]], *, at_once: int) -> list[WorkResult]:
    """Do all of it, begun in order and `at_once` at a time; return the answers in order.

    When all have ended, the first error in order is raised, if there was one.  Cancelled, it cancels what is under way
    and begins nothing more.
    """
    turn = asyncio.Semaphore(at_once)

    async def do(work: Callable[[], Awaitable[WorkResult]]) -> WorkResult:
        async with turn:
            return await work()

    answers = await asyncio.gather(*(do(work) for work in works), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
