"""Watts that a GPU draws with a CUDA context and no work, by model: the line between idle and working by power.

A context alone raises a GPU's clocks and costs 26 to 50 W above bare idle on models with HBM and 66 W on one with
GDDR6, whatever memory it holds (arXiv 2605.23918), so bare idle is the wrong line.  A line too low only makes an idle
GPU *active*; a line too high could make a working one idle, were power alone believed.  The lines of A100, H100 and
L40S follow that paper; those of the other models are estimates by the same difference, and `edl agent --idle-watts`
replaces any of them.  A model that is not listed has no line, and its power counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

IDLE_WATTS: Final[Mapping[str, float]] = {
    "T4": 36.0,
    "L40S": 105.0,
    "A100": 90.0,
    "H100": 125.0,
    "H200": 130.0,
    "B200": 200.0,
}
"""By a word of the driver's name of the model, such as NVIDIA A100-SXM4-80GB."""


def idle_watts(model: str, lines: Mapping[str, float] = IDLE_WATTS) -> float | None:
    """The line of this model; None if it has none.  A name of several words has to be the model's whole name."""
    if model in lines:
        return lines[model]
    words = frozenset(model.replace("-", " ").split())
    found = [watts for word, watts in lines.items() if word in words]
    return found[0] if len(found) == 1 else None
