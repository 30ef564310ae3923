"""Rules of groups left out of the real cores, one at a time: each must be found, or the checker proves nothing.

A break is a patch that replaces one decision of a core, or what the checker plays for it, while a small group is
explored; the product has no switch for any.  The names are those of the 41 breaks of the rules' reference model, which
knows neither stops nor hangs nor digests.  What finds a break is an invariant of `model`, or that END is out of reach;
the cores' own checks are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.protocol.group.breaks import (
    of_checkpoints,
    of_digests,
    of_generations,
    of_hangs,
    of_joiners,
    of_lost_stores,
    of_states,
    of_stops,
)

OF_THE_MODEL: Final = (*of_states.BREAKS, *of_generations.BREAKS, *of_checkpoints.BREAKS)
BREAKS: Final = (
    *OF_THE_MODEL,
    *of_stops.BREAKS,
    *of_hangs.BREAKS,
    *of_digests.BREAKS,
    *of_joiners.BREAKS,
    *of_lost_stores.BREAKS,
)

_TOO_LARGE: Final = "the smallest group that shows it has more states than were explored"
_NOT_BUILT: Final = "joiners that catch up while the others train are not built"

NOT_FOUND: Final[Mapping[str, str]] = {
    "order-step-rank": _TOO_LARGE,
    "order-step-first": _TOO_LARGE,
    "restamp-always": _TOO_LARGE,
    "announce-first": _TOO_LARGE,
    "queue-survives": _NOT_BUILT,
    "half-snapshot + queue-survives": _NOT_BUILT,
    "apply-whole-queue": _NOT_BUILT,
    "gap-ignored": _NOT_BUILT,
}
"""Breaks of the model that are not planted here, and why."""
