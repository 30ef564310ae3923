"""No even placement moves fewer bytes: against all there are, and against an integer program."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from master.job.placement.owner_placement import NO_SERVER, Weight, classes, moves, place

SIZES = st.sampled_from([0, 1, 7, 8, 15, 16, 64])
LOADS = st.sampled_from([0.0, 0.9, 1.0, 5.0, 40.0])
WEIGHT = st.builds(lambda size, load: Weight(size_bytes=size, load=load), SIZES, LOADS)


@st.composite
def problems(draw, *, buckets: int, servers: int):
    """(servers, owners now, weights or none); owners may be servers that leave."""
    count, many = draw(st.integers(1, buckets)), draw(st.integers(1, servers))
    previous = draw(st.lists(st.integers(NO_SERVER, many + 1), min_size=count, max_size=count))
    weights = draw(st.one_of(st.just([]), st.lists(WEIGHT, min_size=count, max_size=count)))
    return many, previous, weights


def moved_bytes(before: Sequence[int], after: Sequence[int], weights: Sequence[Weight]) -> int:
    sizes = [weight.size_bytes for weight in weights] or [1] * len(before)
    return sum(size for size, old, new in zip(sizes, before, after, strict=True) if old != new)


def is_even(owners: Sequence[int], servers: int, weights: Sequence[Weight]) -> bool:
    for alike in classes(len(owners), servers, weights):
        low, high = len(alike) // servers, math.ceil(len(alike) / servers)
        counts = Counter(owners[bucket] for bucket in alike)
        if not all(low <= counts[s] <= high for s in range(servers)):
            return False
    return True


@given(problems(buckets=6, servers=3))
def test_of_all_even_placements_none_moves_fewer_bytes(problem):
    """Against every assignment there is."""
    servers, previous, weights = problem
    chosen = place(len(previous), servers, previous, weights=weights)
    every = itertools.product(range(servers), repeat=len(previous))
    even = [owners for owners in every if is_even(owners, servers, weights)]
    assert chosen in even
    assert moved_bytes(previous, chosen, weights) == min(moved_bytes(previous, one, weights) for one in even)


@settings(max_examples=40)
@given(problems(buckets=40, servers=6))
def test_an_integer_program_moves_no_fewer_bytes(problem):
    """Larger ones; the program may place freely but for evenness."""
    servers, previous, weights = problem
    count = len(previous)
    chosen = place(count, servers, previous, weights=weights)
    sizes = np.array([weight.size_bytes for weight in weights] or [1] * count)
    stays = np.array([[previous[b] == s for s in range(servers)] for b in range(count)])
    rows, low, high = [], [], []
    for alike in classes(count, servers, weights):
        for server in range(servers):
            row = np.zeros((count, servers))
            row[list(alike), server] = 1
            rows.append(row.ravel())
            low.append(len(alike) // servers)
            high.append(math.ceil(len(alike) / servers))
    once = np.kron(np.eye(count), np.ones(servers))
    best = milp(
        -(stays * sizes[:, None]).ravel(),
        integrality=np.ones(count * servers),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(once, 1, 1), LinearConstraint(np.array(rows), low, high)],
    )
    assert best.success
    assert moved_bytes(previous, chosen, weights) == sizes.sum() + round(best.fun)


@given(problems(buckets=60, servers=5))
def test_servers_are_even_in_size_and_in_load(problem):
    """Two servers differ by a bucket a class and by what the buckets of a class differ in, no more."""
    servers, previous, weights = problem
    owners = place(len(previous), servers, previous, weights=weights)
    for measure in ("size_bytes", "load"):
        values = [getattr(weight, measure) for weight in weights] or [1] * len(owners)
        held = [sum(v for v, owner in zip(values, owners, strict=True) if owner == s) for s in range(servers)]
        bound = 0.0
        for alike in classes(len(owners), servers, weights):
            inside = [values[bucket] for bucket in alike]
            bound += math.ceil(len(alike) / servers) * max(inside) - len(alike) // servers * min(inside)
        assert max(held) - min(held) <= bound + 1e-6


@given(problems(buckets=30, servers=5))
def test_every_prefix_of_the_moves_is_a_routing_and_no_class_gets_less_even_on_the_way(problem):
    """One owner a bucket; of each class a server only gives or only gets."""
    servers, previous, weights = problem
    after = place(len(previous), servers, previous, weights=weights)
    now, group = list(previous), classes(len(previous), servers, weights)
    first = [Counter(now[b] for b in alike) for alike in group]
    last = [Counter(after[b] for b in alike) for alike in group]
    for move in moves(previous, after):
        assert now[move.bucket] == move.source != move.target
        assert 0 <= move.target < servers
        now[move.bucket] = move.target
        for alike, begun, ends in zip(group, first, last, strict=True):
            counts = Counter(now[b] for b in alike)
            for s in range(servers):
                assert min(begun[s], ends[s]) <= counts[s] <= max(begun[s], ends[s])
    assert tuple(now) == after


@given(problems(buckets=30, servers=5))
def test_placing_again_moves_nothing(problem):
    """The same servers and weights: at rest."""
    servers, previous, weights = problem
    once = place(len(previous), servers, previous, weights=weights)
    again = place(len(previous), servers, once, weights=weights)
    assert moved_bytes(once, again, weights) == 0
