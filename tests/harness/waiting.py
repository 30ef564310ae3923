"""The one way in which cluster tests wait: for a condition, with a deadline, saying what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from tests.harness.errors import NotInTimeError

POLL_S: Final = 0.1
BUDGET_S: Final = 180.0
"""What waits has failed only when it hangs: how fast the product is stands in `bench`, and machines pause."""

Value = TypeVar("Value")


def wait_for(what: str, probe: Callable[[], Value | None], *, budget_s: float = BUDGET_S) -> Value:
    """The first answer of `probe` that is true.  Raises NotInTimeError, which tells the last one."""
    deadline_s = time.monotonic() + budget_s
    while not (answer := probe()):
        if time.monotonic() > deadline_s:
            raise NotInTimeError(f"{what}: not within {budget_s} s; last seen: {answer!r}")
        time.sleep(POLL_S)
    return answer


def still(look: Callable[[], object], *, for_s: float) -> None:
    """Afterwards `look` has answered the same for so long.  Raises NotInTimeError: it never stopped changing."""
    deadline_s, since_s, before = time.monotonic() + BUDGET_S, time.monotonic(), look()
    while time.monotonic() - since_s < for_s:
        if time.monotonic() > deadline_s:
            raise NotInTimeError(f"not still for {for_s} s within {BUDGET_S} s; last seen: {before!r}")
        time.sleep(POLL_S)
        if (now := look()) != before:
            before, since_s = now, time.monotonic()
