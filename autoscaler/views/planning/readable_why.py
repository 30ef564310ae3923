"""The part of the planner's answer about a job that a viewer may read (ADR 0286).

A plan depends on the whole cluster, so that its answer may name jobs and nodes of others and tell what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from autoscaler.planner.counterfactual import ChangeKind
from autoscaler.views.documents import WITHHELD, Rights
from autoscaler.views.pages.job_page_view import WhyView

OF_THE_JOB: Final = frozenset(
    {
        ChangeKind.TIME,
        ChangeKind.RESUME,
        ChangeKind.PIN,
        ChangeKind.MAX,
        ChangeKind.EFFICIENCY,
        ChangeKind.QUOTA,
        ChangeKind.WEIGHT,
        ChangeKind.PRIORITY,
        ChangeKind.STEP,
        ChangeKind.MIN,
    }
)
"""Kinds of change of the job's own document, of its namespace's quota, or of nothing."""

OF_NODES: Final = frozenset({ChangeKind.VIEW, ChangeKind.OPEN, ChangeKind.NODES})
"""Kinds that name nodes, and tell nothing of what is on them."""

OF_THE_REST: Final = frozenset({"message", "limit", "notice", "held_up_by", "share", "progress"})
"""Fields of a decision that may name other jobs and nodes, or compare the job with others."""


def readable_why(why: WhyView, rights: Rights) -> WhyView:
    """Return the answer as the viewer may read it: to those who may ask the planner, all of it.

    `MoreOnNode` tells what a node lacks, and so what others hold there: it needs every namespace.
    """
    if rights.can_plan:
        return why
    is_everywhere = rights.namespaces is None
    kinds = set(OF_THE_JOB) | (OF_NODES if rights.can_read_nodes else frozenset())
    if is_everywhere and rights.can_read_nodes:
        kinds.add(ChangeKind.RESOURCE)
    problem = WITHHELD if why.problem else ""
    if why.answer is None:
        return replace(why, problem=problem)
    found = [one for one in why.answer["answers"] if all(change["kind"] in kinds for change in one["changes"])]
    is_part = len(found) < len(why.answer["answers"])
    answer: dict[str, Any] = {**why.answer, "answers": found}
    if not is_everywhere:
        answer |= {name: _own_decision(answer[name]) for name in ("decision", "settled")}
    outlook = why.outlook if is_everywhere else None
    return replace(why, answer=answer, problem=problem, outlook=outlook, is_part=is_part or not is_everywhere)


def _own_decision(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decision without the fields about others; a job's status has its message."""
    return {name: value for name, value in decision.items() if name not in OF_THE_REST}
