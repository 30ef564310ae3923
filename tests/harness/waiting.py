"""Waiting for a condition, with a budget and an error that names what did not come.

Tests of processes and of a control plane wait for nothing else: what another process does cannot be awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tests.harness.errors import WaitTimeoutError

FIRST_POLL_S: Final = 0.02
MOST_POLL_S: Final = 0.2
PART_OF_WAIT: Final = 1 / 20
"""The pause between two looks is this part of the time waited so far: what takes long is not asked often, since a
status costs two processes some milliseconds of CPU time each, and what is quick is seen at once."""
BUDGET_S: Final = 180.0
"""A wait fails only when something hangs: how fast the product is stands in `bench`, and machines pause."""

Value = TypeVar("Value")


def wait_for(what: str, probe: Callable[[], Value | None], *, budget_s: float = BUDGET_S) -> Value:
    """The first true answer of `probe`.  Raises WaitTimeoutError with the last one."""
    began_s = asked_s = time.monotonic()
    while not (answer := probe()):
        if time.monotonic() > began_s + budget_s:
            raise WaitTimeoutError(f"{what}: not within {budget_s:g} s; last seen: {answer!r}")
        time.sleep(_pause_s(began_s, asked_s))
        asked_s = time.monotonic()
    return answer


async def wait_for_async(
    what: str, probe: Callable[[], Value | Awaitable[Value | None] | None], *, budget_s: float = BUDGET_S
) -> Value:
    """`wait_for` on an event loop; `probe` may be a coroutine function, cut off at the deadline by TimeoutError."""
    began_s = asked_s = time.monotonic()
    while not (answer := await _ask(probe, began_s + budget_s)):
        if time.monotonic() > began_s + budget_s:
            raise WaitTimeoutError(f"{what}: not within {budget_s:g} s; last seen: {answer!r}")
        await asyncio.sleep(_pause_s(began_s, asked_s))
        asked_s = time.monotonic()
    return answer


async def is_true_within(condition: Callable[[], bool], budget_s: float) -> bool:
    """True if the condition has held within the budget."""
    try:
        return await wait_for_async("the condition", condition, budget_s=budget_s)
    except WaitTimeoutError:
        return False


def wait_unchanged(probe: Callable[[], object], *, for_s: float) -> None:
    """Wait until `probe` has returned the same value for `for_s`.  Raises WaitTimeoutError."""
    deadline_s, since_s, before = time.monotonic() + BUDGET_S, time.monotonic(), probe()
    while time.monotonic() - since_s < for_s:
        if time.monotonic() > deadline_s:
            raise WaitTimeoutError(f"not unchanged for {for_s} s within {BUDGET_S} s; last seen: {before!r}")
        time.sleep(MOST_POLL_S)
        if (now := probe()) != before:
            before, since_s = now, time.monotonic()


def _pause_s(began_s: float, asked_s: float) -> float:
    """Until the next look; not shorter than the last one took, which began at `asked_s`: half the time at most."""
    now_s = time.monotonic()
    return min(MOST_POLL_S, max(FIRST_POLL_S, now_s - asked_s, PART_OF_WAIT * (now_s - began_s)))


async def _ask(probe: Callable[[], Value | Awaitable[Value | None] | None], deadline_s: float) -> Value | None:
    answer = probe()
    if not inspect.isawaitable(answer):
        return answer
    async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
        return await answer
