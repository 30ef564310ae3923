"""The state of a process as the kernel tells it: a fault counts only when it was seen to land."""

from __future__ import annotations

from pathlib import Path

from tests.harness.waiting import is_true_within

LAND_BUDGET_S = 15.0


def process_state(pid: int) -> str:
    """The kernel's letter for the process; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_process_dead(pid: int) -> bool:
    return process_state(pid) in {"", "Z"}


async def has_died(pid: int) -> bool:
    """True if the process was seen to end within LAND_BUDGET_S."""
    return await is_true_within(lambda: is_process_dead(pid), LAND_BUDGET_S)


async def has_stopped(pid: int) -> bool:
    """True if SIGSTOP was seen to stop the process within LAND_BUDGET_S; False also if it died."""
    await is_true_within(lambda: process_state(pid) in {"T", "Z", ""}, LAND_BUDGET_S)
    return process_state(pid) == "T"
