"""When a job will grow, in one sentence for people who do not know the planner's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.domain import Bottleneck

GROWS: Final[Mapping[Bottleneck, str]] = {
    Bottleneck.MAX: "It has the most that its spec allows.",
    Bottleneck.PINNED: "It keeps this size until its spec pins it no more.",
    Bottleneck.NODE_FIT: "It grows once a node has room for it: when web falls, or another job ends.",
    Bottleneck.NEVER_FITS: "It grows only with larger nodes or smaller trainers.",
    Bottleneck.PRIORITY: "It grows once jobs of higher priority leave capacity.",
    Bottleneck.FAIR_SHARE: "It grows once more is free than others are due: when web falls, or another job ends.",
    Bottleneck.STEP: "It grows once a whole step fits.",
    Bottleneck.GANG: "It grows once the job that comes first has started and capacity is left.",
    Bottleneck.CAPACITY_DRAINING: "It grows once the pods that leave have gone.",
    Bottleneck.QUOTA: "It grows once the quota of its namespace allows more.",
    Bottleneck.COOLDOWN: "It grows after its pause, if capacity is free.",
    Bottleneck.BUDGET: "It grows when resizes are allowed again, if capacity is free.",
    Bottleneck.EFFICIENCY: "It grows if its trainers come to bring more than now.",
    Bottleneck.RESIZE_COST: "It grows once a resize pays: what it brings is less than what it costs.",
    Bottleneck.IDLE_HELD: "It grows once GPUs that nobody uses are given back.",
    Bottleneck.IDLE: "It grows once its trainers have work again.",
    Bottleneck.STALE_VIEW: "It grows once the cluster is seen again.",
    Bottleneck.NOT_ACTIVE: "It does not grow any more, unless it is resumed.",
    Bottleneck.PLANNING_FAILED: "It keeps its size until it can be planned again.",
}


def growth_words(bottleneck: str) -> str:
    """Return the sentence for a bottleneck as documents write it; empty for one that is not known."""
    try:
        return GROWS[Bottleneck(bottleneck)]
    except ValueError:
        return ""
