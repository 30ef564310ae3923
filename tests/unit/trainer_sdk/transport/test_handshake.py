"""The first three frames: each side proves to the other that it knows the job's secret, and shows it to nobody."""

import json

import pytest

from trainer_sdk.errors import AuthenticationError, VersionSkewError, WireError
from trainer_sdk.transport.frames import Frame, FrameKind
from trainer_sdk.transport.handshake import DATA_PATH_VERSION, PeerRole, connect_handshake, welcome_client
from trainer_sdk.transport.security import Security

MINE, GUESSED = Security(token=b"secret"), Security(token=b"guess")
NONCE = "ab" * 32


class Peer:
    """A channel whose other end answers with what these functions make of the last thing that was said to it."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.heard = []

    def send(self, kind, head):
        self.heard.append((kind, head))

    def receive_hello(self):
        kind, said = self._answers.pop(0)(self.last)
        return Frame(kind, json.dumps(said).encode(), 0)

    @property
    def last(self):
        return json.loads(self.heard[-1][1]) if self.heard else None


def server(security, **changes):
    """What a server with this secret says."""
    challenge = {"version": DATA_PATH_VERSION, "incarnation": "i", "nonce": NONCE} | changes
    return (
        lambda _: (FrameKind.CHALLENGE, challenge),
        lambda hello: (FrameKind.WELCOME, {"proof": security.proof("server", bytes.fromhex(hello["nonce"]))}),
    )


def client(security, proven=PeerRole.TRAINER, **changes):
    """What a client with this secret says, and proves, of its role."""

    def hello(challenge):
        proof = security.proof(proven, bytes.fromhex(challenge["nonce"]))
        said = {"version": DATA_PATH_VERSION, "role": proven, "name": "t0", "nonce": NONCE, "proof": proof}
        return FrameKind.HELLO, said | changes

    return hello


def test_those_who_know_the_secret_know_each_other():
    """The server hears name and role, the client which process it is."""
    assert connect_handshake(Peer(*server(MINE)), MINE, "t0") == "i"
    for role in PeerRole:
        peer = Peer(client(MINE, role))
        assert welcome_client(peer, MINE, "i") == ("t0", role)
        assert peer.last == {"proof": MINE.proof("server", bytes.fromhex(NONCE))}


def test_a_server_that_does_not_know_the_secret_is_not_talked_to():
    """It takes every proof: gradients and parameters would be anybody's."""
    with pytest.raises(AuthenticationError, match="the server does not know"):
        connect_handshake(Peer(*server(GUESSED)), MINE, "t0")
    with pytest.raises(AuthenticationError):
        connect_handshake(
            Peer(server(MINE)[0], lambda hello: (FrameKind.WELCOME, {"proof": hello["proof"]})), MINE, "t0"
        )


@pytest.mark.parametrize(
    "hello",
    [
        client(GUESSED),
        client(MINE, PeerRole.TRAINER, role=PeerRole.SERVER),
        client(MINE, "server"),
        client(MINE, proof=None),
        client(MINE, proof=MINE.proof(PeerRole.TRAINER, bytes.fromhex(NONCE))),
    ],
)
def test_a_client_that_proves_nothing_is_told_and_refused(hello):
    """A proof of another secret, of another role, of another challenge."""
    peer = Peer(hello)
    with pytest.raises(AuthenticationError):
        welcome_client(peer, MINE, "i")
    assert peer.heard[-1][0] is FrameKind.REFUSED
    assert [kind for kind, _ in peer.heard] == [FrameKind.CHALLENGE, FrameKind.REFUSED]


def test_no_two_challenges_are_the_same():
    """What was heard once is no proof later."""
    peers = [Peer(client(MINE)) for _ in range(2)]
    for peer in peers:
        welcome_client(peer, MINE, "i")
    first, second = (json.loads(peer.heard[0][1])["nonce"] for peer in peers)
    assert first != second


def test_another_version_is_refused_on_both_sides():
    """By its number, before anything of it is believed."""
    peer = Peer(client(MINE, version=DATA_PATH_VERSION + 1))
    with pytest.raises(VersionSkewError):
        welcome_client(peer, MINE, "i")
    assert peer.heard[-1][0] is FrameKind.REFUSED
    with pytest.raises(VersionSkewError):
        connect_handshake(Peer(*server(MINE, version=DATA_PATH_VERSION - 1)), MINE, "t0")


@pytest.mark.parametrize("nonce", ["xy", None, 7.5])
def test_a_challenge_that_is_none_is_refused(nonce):
    with pytest.raises(WireError, match="hexadecimal"):
        connect_handshake(Peer(*server(MINE, nonce=nonce)), MINE, "t0")
