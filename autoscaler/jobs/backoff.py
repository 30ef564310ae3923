"""How long to wait before something that failed is started again: at once first, then longer each time."""

from __future__ import annotations

from typing import Final

LONGEST_PAUSE_S: Final = 30.0
STEADY_AFTER_S: Final = 10.0
"""A process that ran this long has started well; its next failure is a first one again."""


def pause_s(failures: int) -> float:
    """The pause after that many failures in a row: 0, 1, 2, 4, ... up to 30 s."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, 2.0 ** (min(failures, 10) - 2))
