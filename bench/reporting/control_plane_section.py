"""The section of the benchmarks on a real control plane: `tests.cluster.measure`, which needs one, measures it.

Raw figures, commits and how busy the machine was stand in `docs/reports/beside-the-scheduler.json`.  It is not part of
`make bench`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Found = dict[str, Any]

FULL_JOBS = 500  # of the goals
MOST_MB = 400.0
MOST_DECISION_S = 1.0
MOST_REACTION_S = 0.3
MOST_RUNNING_S = 1.5  # beyond the grace


def section(found: Found) -> list[str]:
    """Lines of Markdown; none where nothing has been measured."""
    rows = [row for name in sorted(found) if name.startswith("large") for row in _large(found[name])]
    for reclaim in ("scheduler", "planner"):
        rows += _rises(reclaim, found.get(f"rises-{reclaim}", {}))
    if not rows:
        return []
    head = "Measured by `python -m tests.cluster.measure`; raw figures in `beside-the-scheduler.json`."
    heads = ["| figure | value | goal | met | commit, load before and after |", "|---|---|---|---|---|"]
    return ["", "## beside the real scheduler", "", head, "", *heads, *rows]


def _large(found: Found) -> Iterator[str]:
    """The goals are those of the full size: a part is told beside them."""
    size = f"{found['jobs']} jobs, {found['pods']:,} pods, {found['nodes']:,} nodes"
    memory, over = found["memory_mb"]["VmHWM"], found["resizes_over_the_bound_of_calls"]
    edit_s, drain_s = found["edit_to_first_pod_s"]["p99"], found["drain_to_first_pod_told_s"]["p99"]
    dearest = found["dearest_resize"]
    calls = f"{found['resizes']} resizes, the dearest {dearest['total']} of {dearest['most']}"
    yield _row(f"{size}: operator's memory at its largest", f"{memory:.0f} MB", memory <= MOST_MB, "<= 400", found)
    yield _row(f"{size}: edit to a first pod, p99", f"{edit_s:.2f} s", edit_s <= MOST_DECISION_S, "<= 1", found)
    yield _row(f"{size}: drain to a first pod told, p99", f"{drain_s:.2f} s", drain_s <= MOST_DECISION_S, "<= 1", found)
    yield _row(f"{size}: resizes with too many API calls ({calls})", str(over), over == 0, "0", found)


def _rises(reclaim: str, found: Found) -> Iterator[str]:
    if not found:
        return
    reaction_s, running_s = found["verdict_to_first_deletion_s"]["p99"], found["created_to_running_s"]["p95"]
    limit_s, what = found["grace_s"] + MOST_RUNNING_S, f"reclaim: {reclaim}, {found['rises']} rises of the web"
    yield _row(
        f"{what}: unschedulable to a trainer told to leave, p99",
        f"{reaction_s:.2f} s",
        reaction_s <= MOST_REACTION_S,
        f"<= {MOST_REACTION_S:g}",
        found,
    )
    yield _row(f"{what}: pod runs, p95", f"{running_s:.2f} s", running_s <= limit_s, f"<= {limit_s:g}", found)


def _row(what: str, value: str, is_met: bool, goal: str, found: Found) -> str:
    before, after = found["load_before_and_after"]
    met = ("met" if is_met else "MISS") if found.get("jobs", FULL_JOBS) == FULL_JOBS else ""
    stamp = f"{found['commit']}, {before:.1f} and {after:.1f} on {found['cores']} cores"
    return f"| {what} | {value} | {goal} | {met} | {stamp} |"
