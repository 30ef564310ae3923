"""Who may connect to a member of a group, and what becomes of those who may not."""

import socket
from contextlib import suppress

import pytest

from tests.harness.certificates import JobAuthority
from tests.harness.waiting import wait_for
from tests.integration.trainer_sdk.collective.groups import PATIENCE_S, Blocked, Members, at_all
from trainer_sdk.collective import CollectiveListener, Peer, rendezvous
from trainer_sdk.errors import AuthenticationError, CollectiveAborted
from trainer_sdk.transport.frames import FrameChannel, FrameKind, WireLimits
from trainer_sdk.transport.handshake import PeerRole, connect_handshake
from trainer_sdk.transport.security import Security

SECRET = Security(token=b"secret")


def dial(listener):
    host, _, port = listener.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def greeted(listener, role=PeerRole.MEMBER, security=SECRET):
    channel = FrameChannel(dial(listener), WireLimits(io_s=PATIENCE_S))
    try:
        connect_handshake(channel, security, "a member", role)
    except AuthenticationError:
        channel.close()
        raise
    return channel


@pytest.fixture
def members(new_members):
    return new_members(2, security=SECRET)


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 400, b"EDLp" + b"\xff" * 30, b"EDLp\x0c\0\0\0\xff\xff\0\0" + b"\xff" * 8],
)
def test_garbage_ends_its_own_connection_only(members, said):
    with dial(members.listeners[0]) as sock:
        sock.sendall(said)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
    at_all(members.connect(), lambda group: group.barrier())


@pytest.mark.parametrize(
    "head", [b"{}", b"[" * 900, b"7", b'{"key": "k", "rank": "0", "incarnation": "i", "members": "m"}', b"\xff"]
)
def test_request_that_is_none_is_refused(members, head):
    channel = greeted(members.listeners[0])
    channel.send(FrameKind.GROUP_JOIN, head)
    assert channel.receive().kind is FrameKind.REFUSED
    channel.close()
    at_all(members.connect(), lambda group: group.barrier())


def test_trainer_of_a_parameter_server_is_no_member(members):
    channel = greeted(members.listeners[0], PeerRole.TRAINER)
    channel.send(FrameKind.GROUP_JOIN, b"{}")
    with suppress(OSError):
        assert channel.wait_for_frame() is None
    channel.close()


def test_secret_is_needed_on_both_sides(members):
    """A member with another one neither connects nor is connected to."""
    with pytest.raises(AuthenticationError):
        greeted(members.listeners[0], security=Security(token=b"guess"))
    guessing = CollectiveListener("", Security(token=b"guess"), "process-1")
    peers = [members.peers[0], Peer("process-1", guessing.address)]
    waiting = Blocked(lambda: members.listeners[0].connect(key="1-1", rank=0, members=peers, budget_s=3.0))
    with pytest.raises(CollectiveAborted, match="secret"):
        guessing.connect(key="1-1", rank=1, members=peers, budget_s=PATIENCE_S)
    assert "ranks 1" in waiting.wait()
    guessing.close()


def test_certificate_of_another_authority_is_refused(tmp_path):
    JobAuthority("job").issue(tmp_path / "tls")
    JobAuthority("another").issue(tmp_path / "other")
    members = Members(1, security=Security(tls_folder=tmp_path / "tls"))
    for name, security in (("other", Security(tls_folder=tmp_path / "other")), ("plain", Security())):
        stranger = CollectiveListener("", security, name)
        peers = [*members.peers, Peer(name, stranger.address)]
        with pytest.raises(CollectiveAborted):
            stranger.connect(key="1-1", rank=1, members=peers, budget_s=1.0)
        stranger.close()
    assert members.listeners[0]._rendezvous.waiting == 0
    members.close()


def test_another_process_at_the_address_is_not_talked_to(members):
    """It was restarted: the record names an incarnation that is gone (rule 64)."""
    peers = [Peer("process-0-of-old", members.peers[0].address), members.peers[1]]
    with pytest.raises(CollectiveAborted, match="another process"):
        members.listeners[1].connect(key="1-1", rank=1, members=peers, budget_s=PATIENCE_S)


@pytest.mark.usefixtures("many_descriptors")
def test_flood_of_silent_connections_keeps_no_member_out(members):
    silent = [dial(members.listeners[0]) for _ in range(400)]
    try:
        at_all(members.connect(), lambda group: group.barrier())
        assert len(members.listeners[0]._connections._handshaking) <= 256
    finally:
        for sock in silent:
            sock.close()


def test_connections_for_groups_that_nobody_joins_are_bounded(members, monkeypatch):
    """In number, and in time: a member of the job that runs wild is refused."""
    monkeypatch.setattr(rendezvous, "_MAX_WAITING", 4)
    listener = members.listeners[0]
    request = rendezvous.JoinRequest(key="never", rank=1, incarnation="process-1", members="m").encode()
    channels = [greeted(listener) for _ in range(4)]
    for channel in channels:
        channel.send(FrameKind.GROUP_JOIN, request)
    wait_for("all to wait", lambda: listener._rendezvous.waiting == 4)
    channels.append(greeted(listener))
    channels[-1].send(FrameKind.GROUP_JOIN, request)
    refused = channels[-1].receive()
    assert refused.kind is FrameKind.REFUSED
    assert "4 connections wait" in refused.text
    for channel in channels:
        channel.close()


def test_connection_whose_member_has_left_its_generation_waits_no_longer(members):
    """This member never enters that generation, so nothing else ends the wait before its time is over."""
    near, far = members.listeners
    near._rendezvous._wait_s = 1e4  # beyond the budget of any wait here
    connecting = Blocked(lambda: far.connect(key="1-9", rank=1, members=members.peers, budget_s=PATIENCE_S))
    wait_for("its connection", lambda: near._rendezvous.waiting == 1)
    far.abort("1-9", "the generation was left")
    assert connecting.wait() == "the generation was left"
    wait_for("the end of its connection", lambda: near._rendezvous.waiting == 0)


def test_connection_for_a_group_that_nobody_joins_is_refused_in_time():
    meeting = rendezvous.Rendezvous(wait_s=0.05)
    request = rendezvous.JoinRequest(key="never", rank=1, incarnation="i", members="m")
    near, far = socket.socketpair()
    with near, far, pytest.raises(Exception, match="has not joined"):
        meeting.offer(request, FrameChannel(near, WireLimits()))
    assert meeting.waiting == 0
