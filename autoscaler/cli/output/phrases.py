"""Counts of a job's parameter servers in words, for every command that tells them: pure."""

from __future__ import annotations

from typing import Final

_MEASURED: Final = ", as measured by how long they wait"


def format_count(now: int, target: int) -> str:
    """`2/3`: how many there are and how many there shall be; nothing for a job without servers."""
    return f"{now}/{target}" if now or target else ""


def format_copies(copies: int, alone: int) -> str:
    """`; two copies of each bucket`, and of how many that is not so; nothing where one is wanted."""
    if copies < 2:
        return ""
    return f"; {alone} buckets have one copy, {copies} are wanted" if alone else f"; {copies} copies of each bucket"


def format_server_bounds(
    *, low: int, high: int, pinned: int, trainers_per_server: int, is_measured: bool = False
) -> str:
    """How the number of servers is chosen: pinned, fixed, or by the trainers within bounds."""
    if pinned:
        return f"pinned to {pinned} of {low} to {high}"
    if low == high:
        return f"always {low}"
    each = "trainer" if trainers_per_server == 1 else f"{trainers_per_server} trainers"
    return f"{low} to {high} allowed, one for every {each}{_MEASURED if is_measured else ''}"
