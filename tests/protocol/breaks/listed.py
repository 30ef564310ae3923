"""The 41 holes that the reference models of moves list, and what became of each in the real cores.

`model_moves` plants 25 holes (rules 37 to 62), `model_cut_moves` 16 (58 to 60 beside 19 to 31).  Each is found here by
a break, or it is said why not.  `rows` is the table in docs/protocol-moves.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.protocol.breaks.left_out import Break


@dataclass(frozen=True, slots=True)
class Hole:
    """`found_as`: the break that finds it; none: `why_not` says what stands in front."""

    name: str
    found_as: str = ""
    why_not: str = ""


TOO_LARGE: Final = "the smallest job that shows it has more states than were explored"

OF_MOVES: Final = (
    Hole("primary-first", "primary-first"),
    Hole("answer-first", "answer-first"),
    Hole("alone-on-timeout", "alone-on-timeout"),
    Hole("recruit-unfrozen", "recruit-unfrozen"),
    Hole("no-since", why_not=TOO_LARGE),
    Hole("frozen-accepts", "frozen-accepts"),
    Hole("moved-counts", "moved-counts"),
    Hole("handover-before-freeze", "handover-before-freeze"),
    Hole("source-thaws", "source-thaws"),
    Hole("flip-on-warm", "flip-on-warm"),
    Hole("delta-any-base", "delta-any-base"),
    Hole("marks-stay-behind", "marks-stay-behind"),
    Hole("activate-early", "activate-early"),
    Hole("undo-keeps-version", "undo-keeps-version"),
    Hole("forget-early", "forget-early"),
    Hole("forget-any-version", "forget-any-version"),
    Hole("no-floor", "no-floor"),
    Hole("intent-before-active", "intent-before-active"),
    Hole(
        "intent-volatile",
        why_not="what is frozen is not among the marks that a new master asks for: it rolls back, and nothing is stuck",
    ),
    Hole("intent-survives-rollback", "intent-survives-rollback"),
    Hole("handover-any-lineage", "handover-any-lineage"),
    Hole("restore-keeps-staged", "restore-keeps-staged"),
    Hole("owner-by-name", "owner-by-name"),
    Hole("evict-keeps-lineage", "evict-keeps-lineage"),
    Hole(
        "copy-old-route",
        why_not="files without what head contains are no checkpoint: the master rolls back before it records them",
    ),
)

OF_CUTS: Final = (
    Hole("fork-every", "fork-every"),
    Hole("once-unchecked", "once-unchecked"),
    Hole(
        "inside-unchecked",
        why_not="a bucket that leaves, is trained and comes back during one hold: a larger job than was explored",
    ),
    Hole("freeze-keeps-fork", "freeze-keeps-fork"),
    Hole("fork-after-freeze", "fork-after-freeze"),
    Hole("wanted-live-only", "wanted-live-only"),
    Hole("second-hold", "second-hold"),
    Hole("restore-keeps-fork", "restore-keeps-fork"),
    Hole("skip-on-frozen", "skip-on-frozen"),
    Hole("skip-on-staged", "skip-on-staged"),
    Hole("skips-once", "skips-once"),
    Hole("skipped-stay-behind", "skipped-stay-behind"),
    Hole(
        "revision-uncompared",
        why_not="another rule set: no transaction of ours compares revisions; what is left is `freeze-keeps-fork`",
    ),
    Hole("literal", "literal"),
    Hole(
        "literal-busy",
        why_not="END is out of reach in a region without an end: what is said of refused cuts piles up in the streams",
    ),
    Hole("literal-skips", "skips-once"),
)


def rows(breaks: tuple[Break, ...]) -> Iterator[str]:
    """The lines of the table, in the models' order."""
    rules = {one.name: one for one in breaks}
    for model, holes in (("model_moves", OF_MOVES), ("model_cut_moves", OF_CUTS)):
        for hole in holes:
            found = rules[hole.found_as].rule if hole.found_as else f"*not found*: {hole.why_not}"
            other = f" (as `{hole.found_as}`)" if hole.found_as not in ("", hole.name) else ""
            longer = " (`make check-protocol`)" if hole.found_as and rules[hole.found_as].is_long else ""
            yield f"| `{hole.name}` | {model} | {found}{other}{longer} |"
