"""Operations of a group over real sockets: sums are NumPy's, and every member has the same bits."""

import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.certificates import JobAuthority
from tests.integration.trainer_sdk.collective.groups import Blocked, Members, at_all
from trainer_sdk.errors import CollectiveAborted, UsageError
from trainer_sdk.transport.security import Security

TYPES = ("float32", "float64", "int64", "float16", "bfloat16")
RING = 300_001  # elements; neither a multiple of a rank's share nor of a piece


def values(dtype, size, seed):
    """An array of this type, and its values as float64."""
    drawn = np.random.default_rng(seed).integers(-64, 64, size)
    if dtype == "bfloat16":
        return (drawn.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), drawn.astype(np.float64)
    return drawn.astype(dtype), drawn.astype(np.float64)


def floats(dtype, array):
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def check_sum(groups, dtype, shape, seed=0):
    """Sums of small integers are exact in every type but bfloat16, which has eight bits of them."""
    size = int(np.prod(shape))
    drawn = [values(dtype, size, seed * 10 + rank) for rank in range(len(groups))]
    arrays = [array.reshape(shape) for array, _ in drawn]
    at_all(range(len(groups)), lambda rank: groups[rank].all_reduce(arrays[rank], dtype))
    expected = np.sum([one for _, one in drawn], axis=0).reshape(shape)
    np.testing.assert_allclose(floats(dtype, arrays[0]), expected, rtol=2**-8 if dtype == "bfloat16" else 0)
    assert {array.tobytes() for array in arrays} == {arrays[0].tobytes()}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sums_are_numpys_and_the_same_bits_everywhere(new_members, size):
    """Each type, empty, odd and large, directly and around the ring."""
    groups = new_members(size).connect()
    for dtype in TYPES:
        for shape in ((), (0,), (1,), (3, 5), (8193,), (RING,)):
            check_sum(groups, dtype, shape)


def test_sums_of_any_shape(new_members):
    """As above, sizes drawn about the borders of direct exchange, segments and pieces."""
    groups = new_members(3).connect()

    @settings(max_examples=25)
    @given(st.sampled_from(TYPES), st.integers(0, 9) | st.integers(4000, 20_000) | st.integers(190_000, 210_000))
    def holds(dtype, size):
        check_sum(groups, dtype, (size,))

    holds()


def test_equal_inputs_give_equal_bits(new_members):
    """The order of additions is fixed by rank and place, not by what arrives first."""
    members = new_members(4)
    inputs = [np.random.default_rng(rank).standard_normal(RING).astype(np.float32) for rank in range(4)]
    seen = set()
    for number in range(3):
        groups = members.connect(f"1-{number}")
        arrays = [one.copy() for one in inputs]
        at_all(range(4), lambda rank, groups=groups, arrays=arrays: groups[rank].all_reduce(arrays[rank]))
        seen |= {array.tobytes() for array in arrays}
    assert len(seen) == 1


@pytest.mark.parametrize("where", ["folder", "TLS and secret"])
def test_groups_over_unix_sockets_and_tls(new_members, tmp_path, where):
    """As alone and in a run; as in a cluster."""
    if where == "folder":
        folder = tmp_path / "s"
        folder.mkdir(mode=0o700)
        members = new_members(3, listen=f"unix:{folder}")
    else:
        JobAuthority("job").issue(tmp_path / "tls")
        members = new_members(3, security=Security(token=b"secret", tls_folder=tmp_path / "tls"))
    groups = members.connect()
    for dtype in ("float32", "bfloat16"):
        for size in (7, RING):
            check_sum(groups, dtype, (size,))
    assert at_all(groups, lambda group: group.all_gather(b"x" * 70_000, 70_000)) == [[b"x" * 70_000] * 3] * 3
    assert all(group.bytes_sent > RING * 4 for group in groups)


def test_gathered_data_come_by_rank(new_members):
    groups = new_members(3).connect()
    assert (
        at_all(groups, lambda group: group.all_gather(bytes([group.rank]) * group.rank, 2))
        == [[b"", b"\1", b"\2\2"]] * 3
    )
    with pytest.raises(UsageError, match="max_bytes"):
        groups[0].all_gather(b"abc", 2)


def test_larger_data_than_announced_is_refused_before_it_is_kept(new_members):
    """The members disagree: the group is aborted at both."""
    groups = new_members(2).connect()
    small, large = Blocked(lambda: groups[0].all_gather(b"", 10)), Blocked(lambda: groups[1].all_gather(b"x" * 11, 11))
    assert "more than the 10" in small.wait()
    large_error = Blocked(groups[1].barrier).wait()
    assert large_error
    del large


def test_barrier_holds_until_the_last_has_come(new_members):
    groups = new_members(3).connect()
    passed = []
    early = [threading.Thread(target=lambda one=one: (one.barrier(), passed.append(one.rank))) for one in groups[:2]]
    for thread in early:
        thread.start()
    assert passed == []
    groups[2].barrier()
    for thread in early:
        thread.join()
    assert sorted(passed) == [0, 1]


def test_state_arrives_whole_while_the_others_go_about_their_business(new_members):
    """Two members exchange state; the third is in a barrier meanwhile."""
    groups = new_members(3).connect()
    pieces = [np.random.default_rng(size).bytes(size) for size in (5, 0, 3 << 20, 100)]
    got = []

    def memory(size):
        got.append(bytearray(size))
        return memoryview(got[-1])

    def run(rank):
        if rank == 0:
            assert groups[0].send_state(2, map(memoryview, pieces)) == sum(map(len, pieces))
        elif rank == 2:
            assert groups[2].receive_state(0, memory, 4 << 20) == sum(map(len, pieces))
        groups[rank].barrier()

    at_all(range(3), run)
    assert b"".join(got) == b"".join(pieces)
    assert [len(one) for one in got] == [5, 3 << 20, 100]


def test_state_is_sent_while_the_sender_goes_on(new_members):
    """Two receivers get it one after the other; the sender's next operation waits for both, and is the same one."""
    groups = new_members(3).connect()
    pieces = [np.random.default_rng(size).bytes(size) for size in (5, 3 << 20)]
    is_asked, got = threading.Event(), {1: [], 2: []}

    def run(rank):
        if rank == 0:
            groups[0].begin_sending((1, 2), map(memoryview, pieces))
            is_asked.set()
        else:
            assert is_asked.wait(30)

            def memory(size):
                got[rank].append(bytearray(size))
                return memoryview(got[rank][-1])

            groups[rank].receive_state(0, memory, 4 << 20)
        groups[rank].barrier()

    at_all(range(3), run)
    assert [b"".join(one) for one in got.values()] == [b"".join(pieces)] * 2


def test_state_that_cannot_be_sent_breaks_the_senders_next_operation(new_members):
    """What it goes on with is told that a receiver has nothing."""
    groups = new_members(2).connect()
    groups[0].begin_sending((1,), [memoryview(bytes(64 << 20))])
    groups[1].abort("killed")
    with pytest.raises(CollectiveAborted):
        groups[0].barrier()


def test_operation_of_an_aborted_group_is_no_misuse_while_somebody_closes_it(new_members):
    """The closer may have what the sender's thread held before the script's thread comes for it."""
    groups = new_members(2).connect()
    groups[0].abort("another generation")
    with groups[0]._operating, pytest.raises(CollectiveAborted, match="another generation"):
        groups[0].barrier()


def test_state_whose_pieces_cannot_be_made_breaks_the_group(new_members):
    groups = new_members(2).connect()

    def pieces():
        raise ValueError("no such array")
        yield

    groups[0].begin_sending((1,), pieces())
    with pytest.raises(CollectiveAborted, match="no such array"):
        groups[0].barrier()


def test_state_larger_than_its_bound_asks_for_no_memory(new_members):
    """An absurd size is refused by its announcement."""
    groups = new_members(2).connect()
    asked = []
    sender = threading.Thread(target=Blocked, args=(lambda: groups[0].send_state(1, [memoryview(bytes(8 << 20))] * 2),))
    sender.start()
    with pytest.raises(CollectiveAborted, match="more than the 1,000"):
        groups[1].receive_state(0, asked.append, 1000)
    sender.join()
    assert asked == []


@pytest.mark.parametrize(
    "other",
    [
        lambda group: group.all_reduce(np.zeros(11, dtype=np.float32)),
        lambda group: group.all_reduce(np.zeros(10, dtype=np.float64)),
        lambda group: group.all_gather(b"", 10),
    ],
)
def test_members_in_different_operations_are_told(new_members, other):
    """Sums of other gradients are never made."""
    groups = new_members(2).connect()
    both = [Blocked(lambda: groups[0].all_reduce(np.zeros(10, dtype=np.float32))), Blocked(lambda: other(groups[1]))]
    said = [one.wait() for one in both]
    assert any("another" in text for text in said)


@pytest.mark.parametrize("elements", [10, 100_000])
def test_other_array_at_another_rank_is_the_scripts_error(new_members, elements):
    """The step would come again and again; the other rank is let go."""
    groups = new_members(2).connect()
    sizes = (elements, elements + 1)
    both = [Blocked(partial(group.all_reduce, np.zeros(size))) for group, size in zip(groups, sizes, strict=True)]
    for one in both:
        one.wait()
    assert any(isinstance(one.error, UsageError) and "all trainers must sum the same" in str(one.error) for one in both)


def test_group_of_one_has_no_socket():
    members = Members(1)
    (group,) = members.connect()
    array = np.arange(5.0)
    group.all_reduce(array)
    group.barrier()
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert group.all_gather(b"me", 2) == [b"me"]
    assert group.bytes_sent == 0
    members.close()
    with pytest.raises(CollectiveAborted, match="closed"):
        group.barrier()
