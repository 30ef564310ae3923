"""No placement of second copies that is as even moves fewer (rule 61; `master.job.placement.backup_placement`)."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from master.job.placement.backup_placement import place_backups
from master.job.placement.owner_placement import NO_SERVER


@st.composite
def placements(draw):
    """Servers, owners, and who has the second copies now: the owner itself, nobody or one that left included."""
    servers = draw(st.integers(2, 4))
    owner = draw(st.lists(st.integers(0, servers - 1), min_size=1, max_size=5))
    previous = draw(st.lists(st.integers(NO_SERVER, servers), min_size=len(owner), max_size=len(owner)))
    return servers, owner, previous


def unevenness(at, servers):
    low, high = len(at) // servers, -(-len(at) // servers)
    counts = [at.count(server) for server in range(servers)]
    return sum(max(0, low - count) + max(0, count - high) for count in counts)


def moved(at, previous):
    return sum(now != before for now, before in zip(at, previous, strict=True))


@given(placements())
def test_second_copies_are_elsewhere_even_and_moved_as_little_as_that_allows(drawn):
    """Against all placements there are."""
    servers, owner, previous = drawn
    found = place_backups(owner, servers, previous)
    assert all(copy != first for copy, first in zip(found, owner, strict=True))
    allowed = product(*([s for s in range(servers) if s != first] for first in owner))
    best = min((unevenness(at, servers), moved(at, previous)) for at in allowed)
    assert (unevenness(found, servers), moved(found, previous)) == best


def test_owners_may_be_in_the_way_of_evenness():
    """All buckets of one server, which can have no second copy: the others share them, and that is the end of it."""
    found = place_backups([0] * 5, 4, [NO_SERVER] * 5)
    assert sorted(found.count(server) for server in range(4)) == [0, 1, 2, 2]


def test_of_one_server_there_is_no_second_copy():
    """Two copies need two servers."""
    assert place_backups([0, 0, 0], 1, [NO_SERVER] * 3) == (NO_SERVER,) * 3


def test_a_fresh_placement_has_the_copies_of_a_server_on_the_next_one():
    """So a push is passed on whole, to one server."""
    assert place_backups([0, 0, 1, 1, 2, 2], 3, [NO_SERVER] * 6) == (1, 1, 2, 2, 0, 0)
