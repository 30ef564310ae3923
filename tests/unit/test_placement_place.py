"""Buckets to servers: balanced, deterministic, moving as few as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.job.placement import place


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
