"""Names and texts of others, made fit to be shown: short enough, and without characters that reorder what is around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.views.cluster.pod_view import NodeUnit
from master.api.host.log_lines import escape_controls

ELLIPSIS: Final = "…"


def plain(text: object) -> str:
    """Return the text with control and direction characters shown as escapes (`escape_controls`)."""
    found = str(text)
    return found if found.isprintable() else escape_controls(found)  # nearly all are, and that is known at once


def shortened(text: str, length: int) -> str:
    """Return the text in at most so many characters, with an ellipsis in place of the rest; empty for none."""
    return text if len(text) <= length else text[: length - 1] + ELLIPSIS if length > 1 else ""


def format_count(count: int) -> str:
    """`13,500`."""
    return f"{count:,}"


def format_amount(milli: int) -> str:
    """Thousandths of cores or GPUs as these, with as many digits as they have: `2.5`, or `13,500`."""
    return f"{milli / 1000:,.12g}"


def name_unit(unit: NodeUnit, milli: int) -> str:
    """`cores` or `GPUs`, of just one `core` or `GPU`."""
    return unit.value.removesuffix("s") if milli == 1000 else unit.value


def format_placement(state: str, count: int) -> str:
    """What becomes of so many web pods in this state of a plan: `1 waits`, or `3 find no capacity ...`."""
    one, more = _PLACEMENTS.get(state, ("waits", "wait"))
    return f"{format_count(count)} {one if count == 1 else more}"


_PLACEMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "CapacityFree": ("fits now: the scheduler has only to place it", "fit now: the scheduler has only to place them"),
    "CapacityDraining": ("gets capacity that is being vacated", "get capacity that is being vacated"),
    "ShrunkFor": ("gets capacity that trainers leave for it", "get capacity that trainers leave for them"),
    "NoCapacity": ("finds no capacity that training could give", "find no capacity that training could give"),
    "IdleHeld": (
        "would fit without pods that do not use their GPUs",
        "would fit without pods that do not use their GPUs",
    ),
    "NeverFits": ("fits on no node, not even an empty one", "fit on no node, not even an empty one"),
    "SchedulerRefused": ("did not use capacity that it had", "did not use capacity that they had"),
    "LeftToScheduler": ("is left to the scheduler", "are left to the scheduler"),
    "NotModelled": ("has constraints beyond the planner's test", "have constraints beyond the planner's test"),
}
