"""Missed goals: by how much, and why.

Numbers are computed from the passes; a reason that was measured elsewhere names its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from experiments.reporting.goals import SCHEDULER, GoalResult

HINDSIGHT: Final = (
    "The best single placement of all servers in hindsight, with the web as it was placed, would add 0.5 to 1.1 points"
    " (measured apart on four mixes, one pass each: `docs/adr/0113-placement-by-pattern-waste.md`)"
)
CHOSEN_BY_OTHERS: Final = (
    "With `reclaim: scheduler` kube-scheduler chooses which trainers leave and where the web runs; it does not weigh"
    " what is left over on a node"
)
WAITS_TWICE: Final = (
    "With `reclaim: scheduler` a web pod that needs victims waits for their drain and then for kube-scheduler's"
    " back-off, and nothing leaves before the pod exists: what EDL vacated for growth that was only announced,"
    " kube-scheduler vacated once more (`docs/adr/0150-the-kubernetes-adapter.md`).  Use `reclaim: planner` or headroom"
    " for shorter waits"
)


def format_misses(verdicts: Sequence[GoalResult]) -> list[str]:
    """Return one item of a list for each goal and arm that some mix misses; nothing where all are met."""
    items = []
    for (text, arm), group in groupby(verdicts, key=lambda verdict: (verdict.goal.text, verdict.arm)):
        found = list(group)
        missed = [verdict for verdict in found if not verdict.is_met]
        if missed:
            by = shortfall(missed)
            items.append(f"* {arm}: {text}: missed on {len(missed)} of {len(found)} mixes, {by}.{reasons(found)}")
    return [MISSES, *items, ""] if items else []


def shortfall(missed: Sequence[GoalResult]) -> str:
    """Return by how much the mixes miss, the least and the most."""
    by = sorted(abs(verdict.value - verdict.limit) for verdict in missed)
    return f"by {by[0]:.2f}" if len(by) == 1 else f"by {by[0]:.2f} to {by[-1]:.2f}"


def reasons(found: Sequence[GoalResult]) -> str:
    """Return the reasons: the bounds of the same passes, and what the arm does not choose."""
    sentences = limiting_bounds(found)
    if found[0].arm == SCHEDULER:
        is_of_web = found[0].goal.metric.startswith("web_")
        sentences.append(WAITS_TWICE if is_of_web else CHOSEN_BY_OTHERS)
    return "".join(f"  {sentence}." for sentence in sentences)


def limiting_bounds(found: Sequence[GoalResult]) -> list[str]:
    """Return how far the pinned bound is from the goal and from what was reached; nothing for other goals."""
    metric = found[0].goal.metric
    below = [(v.pinned - v.value, v.pinned < v.limit) for v in found if v.pinned is not None]
    free = sum(v.free < v.limit for v in found if v.free is not None)
    if not metric.endswith("utilisation_percent") or not below:
        return []
    gaps = sorted(gap for gap, _ in below)
    forbidden = sum(is_forbidden for _, is_forbidden in below)
    reason = (
        f"The pinned bound itself is below the goal on {forbidden} of {len(found)}, free on {free}; what was reached is"
        f" {gaps[0]:.2f} to {gaps[-1]:.2f} points below pinned"
    )
    is_fixed = len({verdict.limit for verdict in found}) == 1
    return [reason, HINDSIGHT] if is_fixed else [reason]


MISSES: Final = "Missed goals and their reasons:\n"
