"""Writes of the driver are made until they are answered: a moment without an answer must not end a pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError
from autoscaler.errors import TemporaryError

BUDGET_S: Final = 180.0
PAUSE_S: Final = 0.5


async def insist(write: Callable[[], Awaitable[object]]) -> None:
    """Retry a write until it is applied; one whose answer was lost may have created the object already.

    Raises:
        TemporaryError: not within the budget.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + BUDGET_S
    while True:
        try:
            with suppress(AlreadyExistsError):
                await write()
        except TemporaryError:
            if loop.time() > until_s:
                raise
            await asyncio.sleep(PAUSE_S)
        else:
            return
