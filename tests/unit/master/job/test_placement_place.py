"""Buckets to servers: balanced, deterministic, moving as few as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.job.placement.owner_placement import NO_SERVER, Weight, moves, place


@given(buckets=st.integers(1, 200), servers=st.integers(1, 12))
def test_counts_differ_by_at_most_one(buckets, servers):
    """Every bucket has an owner and no server has two more than another."""
    counts = Counter(place(buckets, servers))
    counts.update(dict.fromkeys(range(servers), 0))
    assert set(counts) == set(range(servers))
    assert max(counts.values()) - min(counts.values()) <= 1


@given(buckets=st.integers(1, 200), before=st.integers(1, 12), after=st.integers(1, 12))
def test_only_what_must_move_moves(buckets, before, after):
    """From one number of servers to another: the fewest moves that balance allows."""
    old = place(buckets, before)
    new = place(buckets, after, old)
    counts = Counter(new)
    assert max(counts.values()) - min(counts.get(server, 0) for server in range(after)) <= 1
    held = sorted((sum(owner == server for owner in old) for server in range(after)), reverse=True)
    low, odd = divmod(buckets, after)
    may_stay = sum(min(count, low + (place_ < odd)) for place_, count in enumerate(held))
    assert sum(a == b for a, b in zip(old, new, strict=True)) == may_stay


def test_same_servers_keep_their_buckets():
    """Placing again on the applied placement is the same placement."""
    owners = place(17, 3)
    assert place(17, 3, owners) == owners


def test_no_servers_is_refused():
    with pytest.raises(ValueError, match="cannot be placed"):
        place(4, 0)


def test_buckets_placed_anew_lie_in_runs():
    """A server's slice of a dense table is one (ADR 0310)."""
    owners = place(256, 3)
    assert sorted(owners) == list(owners)


def test_a_third_server_gets_its_share_and_nothing_else_moves():
    """256 buckets, 2 to 3: one third goes, all of it to the newcomer."""
    before = place(256, 2)
    way = moves(before, place(256, 3, before))
    assert {move.target for move in way} == {2}
    assert len(way) == 85


def test_a_leaving_server_goes_first_and_keeps_nothing():
    """Server 1 has to leave, 3 comes: what has to go is moved before what evens out."""
    before = place(12, 3)
    numbered = {0: 0, 2: 1}  # the servers that stay, and the newcomer as 2
    stays = [numbered.get(owner, NO_SERVER) for owner in before]
    after = [(0, 2, 3)[owner] for owner in place(12, 3, stays)]
    way = moves(before, after, first=(1,))
    assert 1 not in after
    assert [move.source for move in way] == [1, 1, 1, 1]


def test_sources_take_turns():
    """Two servers give at the same time."""
    before = place(8, 2)
    assert [move.source for move in moves(before, place(8, 4, before))] == [0, 1, 0, 1]


def test_the_targets_of_one_source_take_turns():
    """It gives to two servers at the same time: neither's link carries everything while the other waits."""
    way = moves((0, 1, 2, 2, 2, 2), (0, 1, 0, 0, 1, 1))
    assert [move.target for move in way] == [0, 1, 0, 1]


def test_hot_buckets_are_spread_and_sizes_stay_even():
    """Four buckets of eight are hot, all on server 0: load and size are even afterwards, with two moves each way."""
    weights = [Weight(size_bytes=100, load=10.0 if bucket < 4 else 1.0) for bucket in range(8)]
    before = (0, 0, 0, 0, 1, 1, 1, 1)
    after = place(8, 2, before, weights=weights)
    assert [sum(weights[b].load for b in range(8) if after[b] == s) for s in (0, 1)] == [22.0, 22.0]
    assert after.count(0) == 4
    assert len(moves(before, after)) == 4


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"weights": [Weight(size_bytes=1)]}, "weights"),
        ({"weights": [Weight(size_bytes=1, load=float("nan"))] * 4}, "not a number"),
        ({"weights": [Weight(size_bytes=-1)] * 4}, "below 0"),
    ],
)
def test_what_is_no_measure_is_refused(said, what):
    with pytest.raises(ValueError, match=what):
        place(4, 2, **said)
