"""Position sets behave as Python's sets of integers do, and have one form."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.api.positions import EMPTY, MAX_POSITION, PositionsError, PositionSet, common, union

numbers = st.frozensets(st.integers(0, 40), max_size=25)
sets = numbers.map(lambda n: PositionSet.of(*n))


def check_form(s: PositionSet) -> None:
    """The invariant: strictly increasing bounds, an even number of them."""
    assert len(s.bounds) % 2 == 0
    assert all(a < b for a, b in pairwise(s.bounds))


@given(numbers, numbers)
def test_operators_agree_with_sets_of_integers(a, b):
    """Union, intersection, difference, subset and disjointness are those of plain sets."""
    x, y = PositionSet.of(*a), PositionSet.of(*b)
    for ours, theirs in (
        (x | y, a | b),
        (x & y, a & b),
        (x - y, a - b),
        (union((x, y)), a | b),
        (common((x, y)), a & b),
    ):
        check_form(ours)
        assert ours == PositionSet.of(*theirs)
        assert set(ours) == theirs
        assert len(ours) == len(theirs)
    assert (x <= y) == (a <= b)
    assert x.isdisjoint(y) == a.isdisjoint(b)
    assert all((p in x) == (p in a) for p in range(42))


def test_many_ranges_on_both_sides_are_merged_not_spliced():
    """Sets as large as one message can carry: a sum of their sizes, not a product, so nobody can stall a process."""
    count = 30_000
    x = PositionSet(tuple(b for i in range(count) for b in (10 * i, 10 * i + 4)))
    y = PositionSet(tuple(b for i in range(count) for b in (10 * i + 2, 10 * i + 7)))
    begun = time.process_time()
    either, one = x | y, x - y
    assert time.process_time() - begun < 5  # 0.1 s; spliced it is 40 s
    assert either.bounds == tuple(b for i in range(count) for b in (10 * i, 10 * i + 7))
    assert one.bounds == tuple(b for i in range(count) for b in (10 * i, 10 * i + 2))
    assert x - either == EMPTY


@given(sets, st.integers(0, 50))
def test_first_takes_the_lowest(s, count):
    """`first(n)` is a prefix of the set in order."""
    assert list(s.first(count)) == list(s)[:count]


@given(sets)
def test_complement_is_its_own_inverse(s):
    check_form(s.complement())
    assert s.complement().complement() == s
    assert s.isdisjoint(s.complement())
    assert (s | s.complement()) == PositionSet.span(0, MAX_POSITION)


@given(sets)
def test_encoding_round_trips(s):
    assert PositionSet.decode(s.encode()) == s


@given(st.binary(max_size=64))
def test_any_bytes_decode_to_a_sound_set_or_are_refused(data):
    """Garbage never becomes a set that breaks the invariant."""
    try:
        s = PositionSet.decode(data)
    except PositionsError:
        return
    check_form(s)


@pytest.mark.parametrize("data", [b"XX", b"P1" + b"\0" * 15, b"P1" + (5).to_bytes(8, "little") * 2])
def test_altered_bytes_are_refused(data):
    with pytest.raises(PositionsError):
        PositionSet.decode(data)


def test_a_billion_positions_with_a_thousand_holes_stay_under_64_kib():
    """The size that the benchmark times (issue: at most 64 KiB)."""
    s = PositionSet.span(0, 10**9) - PositionSet.from_ranges((k * 10**6, k * 10**6 + 7) for k in range(1, 1001))
    assert len(s.encode()) <= 64 * 1024
    assert PositionSet.decode(s.encode()) == s


def test_text_counts_as_people_do():
    assert str(PositionSet.from_ranges([(0, 100), (120, 121)])) == "0-99,120"
    assert str(EMPTY) == "none"
