"""A trainer's waits for a parameter server that never answers, ended from another thread."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from master.api.identities import Incarnation, MemberName, ServerPlace
from tests.harness.certificates import JobAuthority
from trainer_sdk.errors import ServerUnavailableError
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.frames import FrameChannel, WireLimits
from trainer_sdk.transport.handshake import welcome_client
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings, ServerConnection

LONG_S = 60.0
SETTINGS = ConnectionSettings(limits=WireLimits(io_s=LONG_S, hello_s=LONG_S), connect_s=LONG_S)


@pytest.fixture
def silent():
    """A port whose process is stopped: connections are made by its kernel, and nobody speaks."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        yield listener


def connect(listener, patience, security=None):
    security = security or Security()
    place = ServerPlace(
        name=MemberName("server-0"),
        address=f"127.0.0.1:{listener.getsockname()[1]}",
        incarnation=Incarnation("i"),
        ordinal=0,
    )
    return ServerConnection(place, security, SETTINGS, security.client_context(), patience)


def check_ends(patience, call):
    """The call would last a minute; it ends when patience does."""
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(call)
        time.sleep(0.3)
        assert not waiting.done()
        patience.cancel()
        with pytest.raises(ServerUnavailableError):
            waiting.result(LONG_S / 2)


def test_a_greeting_ends(silent):
    patience = Cancellation()
    check_ends(patience, lambda: connect(silent, patience).channel(time.monotonic() + LONG_S))


def test_a_tls_handshake_ends(silent, tmp_path):
    JobAuthority("job").issue(tmp_path / "tls")
    patience = Cancellation()
    security = Security(tls_folder=tmp_path / "tls")
    check_ends(patience, lambda: connect(silent, patience, security).channel(time.monotonic() + LONG_S))


def test_a_connection_in_the_making_ends(silent):
    """The queue of the port is full: the network takes the first packet and answers nothing."""
    patience = Cancellation()
    others = [socket.socket() for _ in range(4)]
    for other in others:
        other.setblocking(False)
        other.connect_ex(silent.getsockname())
    check_ends(patience, lambda: connect(silent, patience).channel(time.monotonic() + LONG_S))
    for other in others:
        other.close()


def test_pauses_between_attempts_end(silent):
    """Nobody listens any more: it is tried again until the deadline, or the end."""
    patience = Cancellation()
    connection = connect(silent, patience)
    silent.close()
    check_ends(patience, lambda: connection.channel(time.monotonic() + LONG_S))


def test_an_answer_that_never_comes_ends(silent):
    patience = Cancellation()
    connection = connect(silent, patience)

    def welcome():
        sock, _ = silent.accept()
        channel = FrameChannel(sock, WireLimits())
        welcome_client(channel, Security(), "i")
        channel.wait_for_frame()  # until the trainer goes
        sock.close()

    server = threading.Thread(target=welcome)
    server.start()

    def ask():
        try:
            connection.channel(time.monotonic() + LONG_S).receive()
        except OSError:
            connection.close()
        return connection.channel(time.monotonic() + LONG_S)

    check_ends(patience, ask)
    server.join(LONG_S)
    assert not server.is_alive()
