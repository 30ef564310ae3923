"""Comparisons of a group's replicas: what members say of them, and one that a user asks for (rule 65, ADR 0291).

Members compare by themselves before each commit.  A request has them do it with the next steps; the first comparison of
a later state answers it, and where all is trained the last one does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.messages.generations import ComparisonWanted, ReplicaComparison
from master.group.commits import training_generation
from master.group.group_state import GroupState, GroupTurn, keys_of
from master.job.domain.job_events import ComparisonRequested

LONGEST_DIGEST: Final = 64


def handle_requested(turn: GroupTurn, event: ComparisonRequested) -> None:
    """Comes again with each poll until it is answered, so the wish outlives a change of members."""
    asked = turn.state.comparison
    if event.request == asked.answered:
        return
    if event.request != asked.asked:
        turn.change(comparison=replace(asked, asked=event.request, base=asked.newest))
    _answer(turn)
    training = training_generation(turn.state)
    if turn.state.comparison.answered != event.request and training is not None and len(training.members) > 1:
        turn.send(keys_of(training)[0], ComparisonWanted())


def handle_told(turn: GroupTurn, told: ReplicaComparison) -> None:
    """The newest one of the lineage counts; every member tells it."""
    state, known = turn.state, turn.state.comparison.newest
    if told.state.lineage != state.number or len(told.digest) > LONGEST_DIGEST or told.state.step > state.steps:
        return
    if known is None or known.state < told.state:
        turn.change(comparison=replace(state.comparison, newest=told))
        _answer(turn)


def _answer(turn: GroupTurn) -> None:
    asked = turn.state.comparison
    if asked.asked != asked.answered and asked.newest is not None and _is_fresh(turn.state, asked.newest):
        turn.change(comparison=replace(asked, answered=asked.asked))


def _is_fresh(state: GroupState, newest: ReplicaComparison) -> bool:
    base = state.comparison.base
    is_last = newest.state.step == state.steps or newest.state.is_stopped
    return is_last or base is None or base.state < newest.state
