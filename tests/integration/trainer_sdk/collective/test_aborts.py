"""Groups that end: by `abort`, by a member that is lost or leaves, before they are connected."""

import socket
import threading
import time

import numpy as np
import pytest

from tests.harness.waiting import wait_for
from tests.integration.trainer_sdk.collective.groups import PATIENCE_S, Blocked, at_all
from trainer_sdk.errors import CollectiveAborted, CollectiveStalled, UsageError

LARGE = 2_000_000


def test_abort_wakes_every_operation_here_and_there(new_members):
    """Three wait for the fourth; one of them is aborted from another thread (rule 73)."""
    groups = new_members(4).connect(idle_s=10_000.0)
    waiting = [Blocked(lambda one=one: one.all_reduce(np.ones(LARGE, dtype=np.float32))) for one in groups[:3]]
    groups[1].abort("BROKEN 7")
    groups[1].abort("a second reason")
    assert waiting[1].wait() == "BROKEN 7"
    assert "rank" in waiting[0].wait()
    assert "rank" in waiting[2].wait()
    for group in groups[:3]:
        with pytest.raises(CollectiveAborted):
            group.barrier()
    assert "rank" in Blocked(groups[3].barrier).wait()


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_member_that_does_not_talk_to_the_lost_one_is_woken_too(new_members, victim):
    """Around the ring each has two neighbours; the third connection is watched."""
    groups = new_members(4).connect(idle_s=10_000.0)
    waiting = {
        one.rank: Blocked(lambda one=one: one.all_reduce(np.ones(LARGE, dtype=np.float32)))
        for one in groups
        if one.rank != victim
    }
    groups[victim].abort("lost")
    for blocked in waiting.values():
        blocked.wait()


def test_operation_in_which_nothing_moves_ends_at_its_deadline(new_members):
    """Its error says who was waited for, and no later operation of the group gives another reason."""
    groups = new_members(2).connect(idle_s=0.2)
    for _ in range(2):
        with pytest.raises(CollectiveStalled, match="waited for rank 1") as stalled:
            groups[0].barrier()
        assert stalled.value.ranks == (1,)


def test_sending_in_which_nothing_moves_ends_the_next_operation(new_members):
    """Its thread is waited for without a deadline of its own: the operation that it carries out has one."""
    groups = new_members(2).connect(idle_s=0.2)
    groups[0].begin_sending((1,), [memoryview(bytes(64 << 20))])
    with pytest.raises(CollectiveStalled, match="waited for rank 1"):
        groups[0].barrier()


@pytest.mark.parametrize("end", [lambda group: group.abort("BROKEN 7"), lambda group: group.close()])
def test_abort_ends_the_wait_for_a_state_that_nobody_reads(new_members, end):
    """The operation after it, and whoever closes the group, wait for the sender's thread (rule 73)."""
    groups = new_members(2).connect(idle_s=10_000.0)
    groups[0].begin_sending((1,), [memoryview(bytes(64 << 20))])
    waiting = Blocked(groups[0].barrier)
    wait_for("the barrier to wait for the sender", lambda: groups[0]._sending is None)
    closing = threading.Thread(target=end, args=(groups[0],))
    closing.start()
    waiting.wait()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


def test_a_host_that_is_gone_is_noticed_however_long_a_step_takes(new_members):
    """At both ends, whoever opened the connection: the system asks the other host, not the process."""
    groups = new_members(2).connect()
    for group in groups:
        (link,) = group._links.by_rank.values()
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert link.channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s, again_s, count = (link.channel.sock.getsockopt(socket.IPPROTO_TCP, one) for one in options)
        assert idle_s + again_s * count <= 30


def test_member_that_closes_early_leaves_the_slow_one_its_last_operation(new_members):
    """Rule 82: all but one have left before the slow one begins to read."""
    groups = new_members(3).connect()
    arrays = [np.full(1000, rank, dtype=np.float32) for rank in range(3)]
    late = threading.Event()

    def run(rank):
        group = groups[rank]
        if rank == 2:
            group.send_state(0, [memoryview(b"state")])  # rank 0 reads it when rank 1 has left
            group.all_reduce(arrays[rank])
            group.close()
        elif rank == 1:
            group.all_reduce(arrays[rank])
            group.close()
            late.set()
        else:
            kept = bytearray(5)
            group.receive_state(2, lambda _: memoryview(kept), 5)
            group.all_reduce(arrays[rank])
            assert late.wait(PATIENCE_S)

    at_all(range(3), run)
    assert {array.tobytes() for array in arrays} == {np.full(1000, 3, dtype=np.float32).tobytes()}
    with pytest.raises(CollectiveAborted, match=r"left|closed"):
        groups[0].barrier()


def test_members_that_left_do_not_disturb_the_ring_of_those_that_finish(new_members):
    """Many rounds: each closes as soon as its own part is done, whoever still receives."""
    members = new_members(4)
    for number in range(10):
        groups = members.connect(f"1-{number}")

        def run(group):
            array = np.ones(LARGE // 4, dtype=np.float32)
            group.all_reduce(array)
            group.close()
            return float(array[0]), float(array[-1])

        assert set(at_all(groups, run)) == {(4.0, 4.0)}


def test_connect_can_be_aborted(new_members):
    """The other member never comes."""
    listener = (members := new_members(2)).listeners[0]
    joining = Blocked(lambda: listener.connect(key="1-1", rank=0, members=members.peers, budget_s=10_000.0))
    wait_for("the group to be connecting", lambda: "1-1" in listener._groups)
    listener.abort("1-1", "BROKEN 1")
    assert joining.wait() == "BROKEN 1"
    closing = Blocked(lambda: listener.connect(key="1-2", rank=0, members=members.peers, budget_s=10_000.0))
    wait_for("the group to be connecting", lambda: listener._rendezvous.is_joining("1-2"))
    listener.close()
    assert "closes" in closing.wait()


def test_connect_names_who_has_not_come(new_members):
    members = new_members(3)
    with pytest.raises(CollectiveAborted, match="ranks 1, 2"):
        members.listeners[0].connect(key="1-1", rank=0, members=members.peers, budget_s=0.2)
    with pytest.raises(CollectiveAborted):
        members.listeners[2].connect(key="1-2", rank=2, members=members.peers, budget_s=0.2)


def test_early_connection_waits_for_its_group(new_members):
    """A member that hears of the plan first connects first (rule 79)."""
    members = new_members(2)
    found = {}

    def late():
        wait_for("the other's connection", lambda: members.listeners[0]._rendezvous.waiting)
        found[0] = members.listeners[0].connect(key="1-9", rank=0, members=members.peers, budget_s=PATIENCE_S)

    thread = threading.Thread(target=late)
    thread.start()
    found[1] = members.listeners[1].connect(key="1-9", rank=1, members=members.peers, budget_s=PATIENCE_S)
    thread.join()
    members.groups += found.values()
    at_all(found.values(), lambda group: group.barrier())


def test_two_groups_at_once_do_not_disturb_each_other(new_members):
    """The old one trains while the new one connects, and ends without it (rules 79, 82)."""
    members = new_members(3)
    old = members.connect("1-1")
    stop = threading.Event()
    steps = [0] * 3

    def train(group):
        while True:
            array = np.array([float(stop.is_set())])
            group.all_reduce(array)
            steps[group.rank] += 1
            if array[0]:
                return

    training = [threading.Thread(target=train, args=(group,)) for group in old]
    for thread in training:
        thread.start()
    new = members.connect("1-2")
    for group in new[:2]:
        group.abort("replaced")
    again = members.connect("1-3")
    at_all(again, lambda group: group.barrier())
    stop.set()
    for thread in training:
        thread.join()
    assert len(set(steps)) == 1


def test_members_with_other_lists_do_not_form_a_group(new_members):
    """Two records under one number would be two groups in one."""
    members = new_members(2)
    other = [members.peers[0], type(members.peers[1])("process-1", "elsewhere:1")]
    waiting = Blocked(lambda: members.listeners[0].connect(key="1-1", rank=0, members=members.peers, budget_s=5.0))
    with pytest.raises(CollectiveAborted, match="another list of members"):
        members.listeners[1].connect(key="1-1", rank=1, members=other, budget_s=PATIENCE_S)
    waiting.wait()


def test_wrong_use_is_named(new_members):
    members = new_members(2)
    groups = members.connect()
    for key, rank in (("", 0), ("k" * 257, 0), ("1-2", 1), ("1-2", 2), ("1-1", 0)):
        with pytest.raises(UsageError):
            members.listeners[0].connect(key=key, rank=rank, members=members.peers, budget_s=1.0)
    with pytest.raises(UsageError, match="no other member"):
        groups[0].send_state(0, [])
    blocked = Blocked(groups[0].barrier)
    wait_for("the operation to begin", groups[0]._operating.locked)
    with pytest.raises(UsageError, match="at once"):
        groups[0].barrier()
    begun_s = time.monotonic()
    groups[0].close()
    assert "closed during" in blocked.wait()
    assert time.monotonic() - begun_s < PATIENCE_S
