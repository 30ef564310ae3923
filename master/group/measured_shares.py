"""Shares of a step by measured speed: who computes more slowly gets fewer records (rule 63, ADR 0296).

A step ends with its slowest member.  Weights are percents of an equal share, within bounds, and they change only with a
record: with one that is written anyway, or with a plan of its own once the same members have been uneven for a while.
Gradients are weighted by records, so the sum is that of the whole step whatever the shares are.  Not here: the split of
a step's positions by weights (`api.group_shares`), and how a member measures itself (`trainer_sdk.group.step_times`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from master.group.group_state import GroupState, GroupTurn, Replica
from master.job.domain.durable_records import SECOND, MemberKey

EQUAL: Final = 100
LEAST: Final = 50
MOST: Final = 150
"""In percent of an equal share: there must be memory for a half more, and a slow member still tells its speed."""
LEAST_GAIN: Final = 0.1
"""Of a step's time: less is not worth a change, and measured speeds vary by some percent."""
CHECK_NS: Final = 10 * SECOND
UNEVEN_NS: Final = 30 * SECOND
"""So long other weights must be better before a plan is made for them alone."""


def measured_weights(rates: Sequence[float], before: Sequence[int]) -> tuple[int, ...]:
    """Weights by records a second, or those before where the new ones would shorten the step by too little.

    A rate of 0 is not known, and counts as the mean of the others.
    """
    known = [rate for rate in rates if rate > 0.0]
    if not known:
        return tuple(before)
    mean = sum(known) / len(known)
    speeds = [rate if rate > 0.0 else mean for rate in rates]
    new = tuple(min(MOST, max(LEAST, round(EQUAL * speed / mean))) for speed in speeds)
    is_worth_it = _step_time(new, speeds) <= (1.0 - LEAST_GAIN) * _step_time(before, speeds)
    return new if is_worth_it else tuple(before)


def _step_time(weights: Sequence[int], speeds: Sequence[float]) -> float:
    """That of the slowest, in parts of what one record takes."""
    return max(weight / speed for weight, speed in zip(weights, speeds, strict=True)) / sum(weights)


def weights_of(state: GroupState, replicas: Sequence[Replica]) -> tuple[int, ...]:
    """Weights in the next record of these members; all are equal unless the job asks for measured shares."""
    if not state.config.measures_shares:
        return (1,) * len(replicas)
    return measured_weights([one.compute_rate for one in replicas], _before(state, [one.key for one in replicas]))


def _before(state: GroupState, keys: Sequence[MemberKey]) -> tuple[int, ...]:
    """As the record says; of who is new in it an equal share."""
    current = state.current
    held = dict(zip(state.roster.current, current.members, strict=True)) if current else {}
    return tuple(held[key].share if key in held and held[key].share >= LEAST else EQUAL for key in keys)


def is_time_to_observe(turn: GroupTurn) -> bool:
    """True if the present members' speeds are to be compared: every CHECK_NS."""
    return turn.state.config.measures_shares and turn.now >= turn.state.speeds_checked + CHECK_NS


def observe_speeds(turn: GroupTurn) -> None:
    """Notes since when other weights would be better for the present members."""
    state = turn.state
    if not is_time_to_observe(turn):
        return
    here = [one for key in state.roster.current if (one := state.try_replica(key))]
    is_uneven = len(here) > 1 and weights_of(state, here) != _before(state, [one.key for one in here])
    since = state.uneven_since or turn.now
    turn.change(speeds_checked=turn.now, uneven_since=since if is_uneven else None)


def needs_other_weights(turn: GroupTurn) -> bool:
    """True once the same members have been uneven for long enough."""
    since = turn.state.uneven_since
    return since is not None and turn.now >= since + UNEVEN_NS
