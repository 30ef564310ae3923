"""The explorer finds what is planted: a checker that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.protocol.explore import Limits, Move, Verdict, explore


@dataclass(frozen=True)
class Jugs:
    """Two jugs of three and five litres; END is four litres in the larger one."""

    forbidden: tuple[int, int] | None = None

    def initial(self) -> tuple[int, int]:
        return (0, 0)

    def is_end(self, state: tuple[int, int]) -> bool:
        return state[1] == 4

    def moves(self, state: tuple[int, int]) -> Iterable[Move[tuple[int, int]]]:
        a, b = state
        to_b, to_a = min(a, 5 - b), min(b, 3 - a)
        for label, target in (
            ("fill a", (3, b)),
            ("fill b", (a, 5)),
            ("empty a", (0, b)),
            ("empty b", (a, 0)),
            ("a into b", (a - to_b, b + to_b)),
            ("b into a", (a + to_a, b - to_a)),
        ):
            yield Move(label, target, violation="forbidden" if target == self.forbidden else None)


@dataclass(frozen=True)
class Lift:
    """Goes up to END; a fault drops it into a cellar which it may not be able to leave."""

    has_ladder: bool
    floors: int = 6
    broken_floor: int = -1

    def initial(self) -> int:
        return 0

    def is_end(self, state: int) -> bool:
        return state == self.floors

    def moves(self, state: int) -> Iterable[Move[int]]:
        if state >= 0:
            yield Move("up", state + 1, violation="broken" if state == self.broken_floor else None)
            yield Move("falls", -1, is_fault=True)
        else:
            yield Move("sits", -1)
            yield Move("is pulled out by another fault", 0, is_fault=True)
            if self.has_ladder:
                yield Move("climbs", 0)


def test_a_planted_violation_is_found_by_a_shortest_trace():
    report = explore(Jugs(forbidden=(2, 5)))
    assert report.verdict is Verdict.VIOLATED
    assert report.trace == ("fill b", "b into a", "empty a", "b into a", "fill b")


def test_a_sound_model_is_explored_to_its_end():
    report = explore(Jugs())
    assert (report.verdict, report.ends) == (Verdict.OK, 2)  # (0, 4) and (3, 4)
    assert 10 < report.states < 24


def test_a_state_that_only_a_fault_can_leave_is_stuck():
    report = explore(Lift(has_ladder=False))
    assert (report.verdict, report.trace) == (Verdict.STUCK, ("falls",))


def test_a_state_that_a_step_can_leave_is_not_stuck():
    assert explore(Lift(has_ladder=True)).verdict is Verdict.OK


def test_a_limit_cuts_off_and_does_not_call_the_frontier_stuck():
    report = explore(Lift(has_ladder=True, floors=50_000), Limits(states=4_000))
    assert report.verdict is Verdict.CUT_OFF
    assert 4_000 <= report.states < 6_000


def test_what_is_stuck_is_found_even_when_the_space_is_cut_off():
    assert explore(Lift(has_ladder=False, floors=50_000), Limits(states=4_000)).verdict is Verdict.STUCK


def test_what_is_stuck_is_found_on_the_way():
    """Long before a large space is explored; `states` counts those that were."""
    report = explore(Lift(has_ladder=False, floors=50_000))
    assert report.verdict is Verdict.STUCK
    assert report.states < 2_000


def test_where_no_job_ends_the_walk_goes_on_to_what_is_violated():
    """Every state would be stuck, and a violation behind them would not be met."""
    model = Lift(has_ladder=False, floors=50_000, broken_floor=3_000)
    assert explore(model).verdict is Verdict.STUCK
    assert explore(model, Limits(has_end=False)).verdict is Verdict.VIOLATED
