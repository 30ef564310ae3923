"""Frames on a socket that sends and receives at once, without waiting: one thread drives many of these.

Members of a group send while they receive; with blocking calls two members whose buffers are full would wait for each
other.  Every call returns at once; who drives the channels waits in `poll`, with a deadline.  Sizes of bodies are
bounded by whoever reads a frame, before anything is allocated.  `frames` has the blocking form of the same wire.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Sequence
from typing import Final

from trainer_sdk.transport.frames import HEADER_BYTES, Frame, FrameChannel, parse_header

_AHEAD_BYTES: Final = 4096
_MAX_HEAD_BYTES: Final = 1024
_MAX_PIECES: Final = 512  # below IOV_MAX, 1024 on Linux
_RECORD_BYTES: Final = 16 * 1024  # of TLS


class DuplexChannel:
    """Frames of one connected, authenticated socket.  Not thread-safe.  Its methods raise WireError or OSError."""

    def __init__(self, channel: FrameChannel) -> None:
        """Takes the socket over from the channel that made the handshake."""
        self.sock, ahead = channel.release()
        self.sock.setblocking(False)
        self._is_tls = isinstance(self.sock, ssl.SSLSocket)
        self._ahead = memoryview(bytearray(max(_AHEAD_BYTES, len(ahead))))
        self._start, self._stop = 0, len(ahead)
        self._ahead[: len(ahead)] = ahead
        self.can_send = self._can_receive = True  # False: not before `poll` says so, see `woken`
        self.bytes_sent = 0
        self.bytes_received = 0

    @property
    def has_ahead(self) -> bool:
        """True if input was read that no frame or body has taken yet."""
        return self._start < self._stop

    def woken(self, events: int) -> None:
        """`poll` has returned these events: what they allow is tried again."""
        if events & ~select.POLLIN:
            self.can_send = True
        if events & ~select.POLLOUT:
            self._can_receive = True

    def try_send(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Number of bytes that the system took, from the first piece on; 0: none at the moment.

        After a 0 the next call begins with the same bytes: TLS has encrypted them already.  `can_send` is False until
        `woken` where the system took less than it was given.
        """
        try:
            sent = self.sock.send(_record(pieces)) if self._is_tls else self.sock.sendmsg(pieces[:_MAX_PIECES])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.can_send = self._is_tls
            return 0
        self.can_send = self._is_tls or sent == sum(map(len, pieces[:_MAX_PIECES]))
        self.bytes_sent += sent
        return sent

    def try_receive_into(self, view: memoryview) -> int:
        """Number of bytes that were there; 0: none at the moment.  Raises ConnectionResetError: the peer has closed."""
        if self._start < self._stop:
            got = min(self._stop - self._start, len(view))
            view[:got] = self._ahead[self._start : self._start + got]
            self._start += got
            return got
        return self._receive(view)

    def try_receive_frame(self) -> Frame | None:
        """The start of the next frame; None: it is not there yet."""
        if (frame := self.try_look_ahead()) is not None:
            self._start += HEADER_BYTES + len(frame.head)
        return frame

    def try_look_ahead(self) -> Frame | None:
        """The start of the next frame, which stays the next; None: it is not there yet."""
        while True:
            if self._stop - self._start >= HEADER_BYTES:
                kind, head_bytes, body_bytes = parse_header(self._ahead, self._start, most_head_bytes=_MAX_HEAD_BYTES)
                begin = self._start + HEADER_BYTES
                if begin + head_bytes <= self._stop:
                    return Frame(kind, bytes(self._ahead[begin : begin + head_bytes]), body_bytes)
            self._make_room()
            got = self._receive(self._ahead[self._stop :])
            if not got:
                return None
            self._stop += got

    def _make_room(self) -> None:
        if self._start:
            left = bytes(self._ahead[self._start : self._stop])
            self._ahead[: len(left)] = left
            self._start, self._stop = 0, len(left)

    def _receive(self, view: memoryview) -> int:
        if not self._can_receive:
            return 0
        try:
            got = self.sock.recv_into(view)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._can_receive = self._is_tls
            return 0
        if not got:
            raise ConnectionResetError("the peer has closed the connection")
        self._can_receive = self._is_tls or got == len(view)  # TLS gives a record at a time, and may hold the next
        self.bytes_received += got
        return got


def _record(pieces: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """The first bytes of the pieces, as many as one record of TLS holds."""
    first = pieces[0]
    if len(pieces) == 1 or len(first) >= _RECORD_BYTES:
        return first[:_RECORD_BYTES]
    record = bytearray()
    for piece in pieces:
        record += piece[: _RECORD_BYTES - len(record)]
        if len(record) == _RECORD_BYTES:
            break
    return bytes(record)
