"""Frames through a pair of sockets: whole whatever their size, and nobody waits for ever."""

import socket
import threading

import pytest

from trainer_sdk.transport import frames
from trainer_sdk.transport.frames import FrameChannel, FrameKind, WireLimits

LIMITS = WireLimits(io_s=20.0)


@pytest.fixture
def pair():
    with_care = socket.socketpair()
    yield with_care
    for end in with_care:
        end.close()


@pytest.mark.parametrize("sizes", [(0,), (1, 3), (4096,), (100, 5000, 7), (3 << 20, 1, 3 << 20), (1000,) * 2000])
def test_a_body_arrives_whole(pair, sizes):
    """However many pieces it is of, and however many the kernel takes at once."""
    body = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    sender, receiver = (FrameChannel(end, LIMITS) for end in pair)
    sending = threading.Thread(
        target=sender.send, args=(FrameKind.PUSH, b"head", [memoryview(piece) for piece in body])
    )
    sending.start()
    frame = receiver.receive()
    assert (frame.kind, frame.head, frame.body_bytes) == (FrameKind.PUSH, b"head", sum(sizes))
    into = bytearray(frame.body_bytes)
    receiver.receive_into([memoryview(into)[:10], memoryview(into)[10:]])
    sending.join()
    assert bytes(into) == b"".join(body)


def test_a_peer_that_says_nothing_is_waited_for_so_long_and_no_longer(pair):
    """In the head as in the body."""
    channel = FrameChannel(pair[0], WireLimits(io_s=0.05))
    with pytest.raises(TimeoutError, match="the peer sent nothing"):
        channel.receive()
    with pytest.raises(TimeoutError, match="the peer sent nothing"):
        channel.receive_into([memoryview(bytearray(8))])


def test_a_peer_that_takes_nothing_is_waited_for_so_long_and_no_longer(pair):
    channel = FrameChannel(pair[0], WireLimits(io_s=0.05))
    with pytest.raises(TimeoutError, match="the peer accepted nothing"):
        channel.send(FrameKind.PUSH, b"", [memoryview(bytes(64 << 20))])


def test_a_frame_that_breaks_off_is_no_frame(pair):
    channel = FrameChannel(pair[0], LIMITS)
    sender = FrameChannel(pair[1], LIMITS)
    sender.begin_frame(FrameKind.PUSH, b"head", 100)
    sender.send_piece(memoryview(bytes(10)))
    pair[1].close()
    assert channel.receive().body_bytes == 100
    with pytest.raises(ConnectionResetError):
        channel.receive_into([memoryview(bytearray(100))])


@pytest.mark.parametrize("sent", range(9))
def test_what_was_not_taken_is_sent_next(sent):
    """Pieces that went are gone, of one that went in part the rest stays."""
    pieces = [b"abc", memoryview(b"de"), b"fghi"]
    left = frames._rest(pieces, sent)
    assert b"".join(map(bytes, left)) == b"abcdefghi"[sent:]
    assert all(left)
