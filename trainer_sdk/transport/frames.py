"""Frames between the processes of a job: a fixed header, a small head, and a body of raw arrays.

The problem: tensors should cross a socket without avoidable copies, and bytes from an unauthenticated peer must do no
harm.  Bodies are sent from and received into the arrays themselves; sizes are bounded before anything is allocated;
every socket operation has a deadline.  `pserver.wire` has the meaning of heads, `handshake` authenticates peers, and
`duplex` sends and receives the same frames at once.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from trainer_sdk.errors import FrameTooLargeError, WireError
from trainer_sdk.transport.forked_children import close_in_children

MAGIC: Final = b"EDLp"
_HEADER: Final = struct.Struct("<4sB3xIQ")  # magic, kind, bytes of head, bytes of body
HEADER_BYTES: Final = _HEADER.size
_MAX_HEAD_BYTES: Final = 1024 * 1024
_MAX_TEXT_BYTES: Final = 4096
_MAX_PIECES: Final = 512  # below IOV_MAX, 1024 on Linux
_RECORD_BYTES: Final = 16 * 1024  # of TLS
_SKIPPED_BYTES: Final = 256 * 1024
_PEER_CLOSED: Final = getattr(select, "POLLRDHUP", 0)  # on other systems than Linux only an error is seen
_AHEAD_BYTES: Final = 4096  # a head of an ordinary batch and some more


class FrameKind(IntEnum):
    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    REFUSED = 4
    PUSH = 5
    PUSH_ANSWER = 6
    PULL = 7
    PULL_ANSWER = 8
    COPY = 9
    COPY_ANSWER = 10
    BACKUP_PUSH = 11  # answered by PUSH_ANSWER
    GROUP_JOIN = 12  # first frame of a connection between two members of a group, answered by GROUP_JOINED
    GROUP_JOINED = 13
    GROUP_REDUCE = 14
    GROUP_GATHER = 15
    GROUP_STATE = 16
    GROUP_GOODBYE = 17  # last frame: the sender has finished its last operation


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Bounds of one connection."""

    frame_bytes: int = 1 << 30  # a body: a server's share of a model, or a bucket that moves
    io_s: float = 30.0  # one socket operation within a frame, before peer or network count as stopped
    hello_s: float = 10.0  # for each whole frame of the handshake
    idle_s: float = 3600.0  # between two frames of a trainer: its longest step or pause


class Frame(NamedTuple):
    """Start of a frame; `body_bytes` are still to be received."""

    kind: FrameKind
    head: bytes
    body_bytes: int

    @property
    def text(self) -> str:
        """The head as text, for a message about a refusal."""
        return self.head[:_MAX_TEXT_BYTES].decode(errors="replace")


def pack_header(kind: FrameKind, head: bytes, body_bytes: int) -> bytes:
    """Header and head of a frame."""
    return _HEADER.pack(MAGIC, kind, len(head), body_bytes) + head


def parse_header(view: memoryview, at: int, *, most_head_bytes: int = _MAX_HEAD_BYTES) -> tuple[FrameKind, int, int]:
    """Kind, bytes of head and bytes of body of the header that begins at `at`.  Raises WireError."""
    magic, number, head_bytes, body_bytes = _HEADER.unpack_from(view, at)
    if magic != MAGIC:
        raise WireError(f"the peer is no process of EDL: its frame begins with {magic!r}, not {MAGIC!r}")
    kind = _KINDS.get(number)
    if kind is None:
        raise WireError(f"frame of unknown kind {number}: another version of EDL?")
    if head_bytes > most_head_bytes:
        raise FrameTooLargeError("head of a frame", size_bytes=head_bytes, limit_bytes=most_head_bytes)
    return kind, head_bytes, body_bytes


class FrameChannel:
    """Frames on one connected socket.  Not thread-safe.  Its methods raise WireError, TimeoutError or another OSError.

    A plain socket blocks in the kernel with the deadline there (SO_RCVTIMEO): a large body is one call, which holds no
    interpreter lock.  Python's own time-outs would poll before each call and return for every few segments.  Input is
    read ahead a little: header and head of a frame, and often the next frame, cost one call.
    """

    def __init__(self, sock: socket.socket, limits: WireLimits) -> None:
        self._sock, self._limits = sock, limits
        close_in_children(sock)
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._arrivals = select.poll()
        self._arrivals.register(sock, select.POLLIN)
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._start = self._stop = 0  # the part of `_ahead` that is not consumed yet
        self._leaving: list[bytes | memoryview] = []
        self._leaving_bytes = 0
        if not self._is_tls:
            sock.settimeout(None)
        self._limit_operations(limits.io_s)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _limit_operations(self, limit_s: float) -> None:
        """Bounds the time of each later call to the socket."""
        if self._is_tls:
            self._sock.settimeout(limit_s)
            return
        deadline = struct.pack("@ll", int(limit_s), int(limit_s % 1 * 1e6))
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._sock.setsockopt(socket.SOL_SOCKET, direction, deadline)

    def close(self) -> None:
        self._sock.close()

    @property
    def is_ended_by_peer(self) -> bool:
        """True if the peer has closed the connection, or its process is gone; input may still be there."""
        endings = select.poll()
        endings.register(self._sock, _PEER_CLOSED)
        return bool(endings.poll(0))

    def release(self) -> tuple[socket.socket, bytes]:
        """The socket and the bytes that were read ahead; this channel is not used again."""
        return self._sock, bytes(self._ahead[self._start : self._stop])

    def send(self, kind: FrameKind, head: bytes, body: Sequence[memoryview] = (), *, more: bool = False) -> None:
        """Hands the whole frame to the system.

        `more`: it leaves with the next frame, which follows at once; each packet wakes the peer.
        """
        size = 0
        for piece in body:
            size += piece.nbytes
        self.begin_frame(kind, head, size)
        self._leaving += body
        self._leaving_bytes += size
        if not more:
            self._flush()

    def begin_frame(self, kind: FrameKind, head: bytes, body_bytes: int) -> None:
        """Begins a frame; its whole body follows by `send_piece` before anything else is sent."""
        if body_bytes > self._limits.frame_bytes:
            what = f"{kind.name} to be sent"
            raise FrameTooLargeError(what, size_bytes=body_bytes, limit_bytes=self._limits.frame_bytes)
        self._leaving.append(pack_header(kind, head, body_bytes))
        self._leaving_bytes += _HEADER.size + len(head)

    def send_piece(self, piece: memoryview) -> None:
        """Hands the next piece of a body to the system."""
        self._leaving.append(piece)
        self._leaving_bytes += piece.nbytes
        self._flush()

    def has_input(self) -> bool:
        """True if input from the peer has arrived."""
        if self._start < self._stop:
            return True
        if isinstance(self._sock, ssl.SSLSocket):
            return self._sock.pending() > 0 or bool(self._arrivals.poll(0))
        self._start = self._stop = 0
        try:
            self._stop = self._sock.recv_into(self._ahead, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return self._stop > 0

    def wait_for_frame(self) -> Frame | None:
        """The start of the next frame, which may take up to `idle_s` to begin; None: the peer has closed."""
        waited_s = 0.0
        while self._start == self._stop:
            try:
                if not self._read_ahead():
                    return None
            except TimeoutError:
                waited_s += self._limits.io_s
                if waited_s >= self._limits.idle_s:
                    raise
        return self.receive()

    def receive_hello(self) -> Frame:
        """A frame of the handshake: small, without a body, and whole within `hello_s`."""
        self._limit_operations(self._limits.hello_s)
        frame = self._receive(_AHEAD_BYTES, time.monotonic() + self._limits.hello_s)
        self._limit_operations(self._limits.io_s)
        if frame.body_bytes:
            raise WireError(f"{frame.kind.name} with a body, from a peer that is not known yet")
        return frame

    def receive(self) -> Frame:
        """The start of the next frame."""
        return self._receive(_MAX_HEAD_BYTES, math.inf)

    def _receive(self, most_head_bytes: int, until_s: float) -> Frame:
        self._need(_HEADER.size, until_s)
        kind, head_bytes, body_bytes = parse_header(self._ahead, self._start, most_head_bytes=most_head_bytes)
        if body_bytes > self._limits.frame_bytes:
            raise FrameTooLargeError("body of a frame", size_bytes=body_bytes, limit_bytes=self._limits.frame_bytes)
        self._start += _HEADER.size
        return Frame(kind, self._head(head_bytes, until_s), body_bytes)

    def receive_into(self, pieces: Sequence[memoryview]) -> None:
        """Fills the pieces (views of bytes) with the body, in order."""
        for piece in pieces:
            at = min(self._stop - self._start, len(piece))
            if at:
                piece[:at] = self._ahead[self._start : self._start + at]
                self._start += at
            while at < len(piece):
                got = self._receive_some(piece[at:] if at else piece)
                if not got:
                    raise _closed_in_frame()
                at += got

    def receive_some_of(self, view: memoryview, least: int) -> int:
        """Fills at least `least` bytes and whatever has arrived beyond; returns the number of bytes."""
        least = min(least, view.nbytes)
        self.receive_into([view[:least]])
        if least == view.nbytes or self._start < self._stop or self._is_tls:
            return least
        try:
            return least + self._sock.recv_into(view[least:], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return least

    def discard(self, size: int) -> None:
        """Receives and drops a body."""
        piece = memoryview(bytearray(min(size, _SKIPPED_BYTES)))
        while size:
            self.receive_into([piece[:size]])
            size -= min(size, len(piece))

    def _head(self, size: int, until_s: float) -> bytes:
        if size <= _AHEAD_BYTES:
            self._need(size, until_s)
            head = bytes(self._ahead[self._start : self._start + size])
            self._start += size
            return head
        large = bytearray(size)
        self.receive_into([memoryview(large)])
        return bytes(large)

    def _need(self, size: int, until_s: float) -> None:
        """Reads ahead until so many bytes are there, at most `_AHEAD_BYTES`."""
        if self._start + size > _AHEAD_BYTES:
            left = self._stop - self._start
            self._ahead[:left] = bytes(self._ahead[self._start : self._stop])
            self._start, self._stop = 0, left
        while self._stop - self._start < size:
            if not self._read_ahead():
                raise _closed_in_frame()
            if time.monotonic() > until_s:
                raise TimeoutError(f"no hello within {self._limits.hello_s} s")

    def _read_ahead(self) -> int:
        """Number of bytes that came; 0: the peer has closed."""
        if self._start == self._stop:
            self._start = self._stop = 0
        try:
            got = self._sock.recv_into(self._ahead[self._stop :])
        except BlockingIOError as error:
            raise TimeoutError(f"the peer sent nothing for {self._limits.io_s} s") from error
        self._stop += got
        return got

    def _receive_some(self, view: memoryview) -> int:
        if self._is_tls:
            return self._sock.recv_into(view)
        try:
            return self._sock.recv_into(view, 0, socket.MSG_WAITALL)
        except BlockingIOError as error:
            raise TimeoutError(f"the peer sent nothing for {self._limits.io_s} s") from error

    def _flush(self) -> None:
        pieces, size = self._leaving, self._leaving_bytes
        self._leaving, self._leaving_bytes = [], 0
        if self._is_tls:
            for piece in _records(pieces):
                self._sock.sendall(piece)
            return
        while True:
            try:
                sent = self._sock.sendmsg(pieces[:_MAX_PIECES])
            except BlockingIOError as error:
                raise TimeoutError(f"the peer accepted nothing for {self._limits.io_s} s") from error
            size -= sent
            if not size:
                return
            pieces = _rest(pieces, sent)


def _rest(pieces: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """The pieces without the bytes that were sent."""
    at = 0
    while sent >= len(pieces[at]):
        sent -= len(pieces[at])
        at += 1
    return [memoryview(pieces[at])[sent:], *pieces[at + 1 :]]


def _closed_in_frame() -> ConnectionResetError:
    return ConnectionResetError("the peer closed the connection in the middle of a frame")


_KINDS: Final = {int(kind): kind for kind in FrameKind}


def _records(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in whole TLS records: a head shares one with its body, nothing else is copied."""
    begun = bytearray()
    for piece in pieces:
        filled = min(len(piece), _RECORD_BYTES - len(begun)) if begun else 0
        begun += piece[:filled]
        if len(begun) == _RECORD_BYTES:
            yield bytes(begun)
            begun.clear()
        whole = (len(piece) - filled) // _RECORD_BYTES * _RECORD_BYTES
        if whole:
            yield piece[filled : filled + whole]
        begun += piece[filled + whole :]
    if begun:
        yield bytes(begun)
