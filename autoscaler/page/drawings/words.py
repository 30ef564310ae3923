"""Names and texts of others, made fit to be shown: short enough, and without characters that reorder what is around."""

from __future__ import annotations

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


def format_amount(unit: NodeUnit, amount: int) -> str:
    """`2.5` cores, or `4` GPUs."""
    return format_cpu_cores(amount) if unit is NodeUnit.CORES else f"{amount // 1000}"


def format_cpu_cores(milli: int) -> str:
    """Cores with as many digits as they have."""
    return f"{milli / 1000:g}"
