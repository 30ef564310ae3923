"""Phrases that several commands print: ages, endings, and the number of a job's parameter servers.  Pure."""

from __future__ import annotations

from typing import Final

_MEASURED: Final = ", as measured by how long trainers wait for them"


def format_age(age_s: float | None) -> str:
    """Age as kubectl prints it: 12s, 3m20s, 2h5m, 12d."""
    if age_s is None:
        return ""
    seconds = int(age_s)
    if seconds < 120:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d"
    return f"{minutes}m" if hours == 0 else f"{hours}h{rest}m"


def format_ago(age_s: float) -> str:
    """`12s ago`; what has happened within a second is just now."""
    return f"{format_age(age_s)} ago" if age_s >= 1 else "just now"


def format_ending(ending: str, age_s: float | None, message: str) -> str:
    """`Completed 12s ago: why`."""
    when = "" if age_s is None else f" {format_age(max(0.0, age_s))} ago"
    return f"{ending}{when}" + (f": {message}" if message else "")


def format_count(now: int, target: int) -> str:
    """`2/3`: the servers that there are, and the target; empty for a job without servers."""
    return f"{now}/{target}" if now or target else ""


def format_copies(copies: int, single_copies: int) -> str:
    """`; 2 copies of each bucket`, or how many buckets have one copy alone; empty where one copy is wanted."""
    if copies < 2:
        return ""
    return (
        f"; {single_copies} buckets have one copy, {copies} are wanted"
        if single_copies
        else f"; {copies} copies of each bucket"
    )


def format_server_bounds(
    *, low: int, high: int, pinned: int, trainers_per_server: int, is_measured: bool = False
) -> str:
    """Phrase for how the number of servers is chosen: pinned, fixed, or by the trainers within bounds."""
    if pinned:
        return f"pinned to {pinned} of {low} to {high}"
    if low == high:
        return f"always {low}"
    each = "trainer" if trainers_per_server == 1 else f"{trainers_per_server} trainers"
    return f"{low} to {high} allowed, one for every {each}{_MEASURED if is_measured else ''}"
