"""What the kernel says of a process, and waiting for it: a fault counts when it was seen to land."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

LAND_BUDGET_S = 15.0


def state_of(pid: int) -> str:
    """The kernel's letter for the process; empty: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_dead(pid: int) -> bool:
    return state_of(pid) in {"", "Z"}


async def until(condition: Callable[[], bool], budget_s: float = LAND_BUDGET_S) -> bool:
    """Whether it held within the budget."""
    until_s = time.monotonic() + budget_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(0.02)
    return True
