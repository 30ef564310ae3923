"""Frames between a trainer and a parameter server: a fixed header, a small head, and a body of raw arrays.

The problem: tensors should cross a socket without a copy that can be saved, and nothing that a stranger sends may hurt.
Bodies are sent from and received into the arrays themselves; sizes are bounded before anything is allocated; every
socket operation has a deadline.  The meaning of heads is in `wire_messages`, who may speak in `handshake`.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from trainer_sdk.errors import FrameTooLargeError, WireError

MAGIC: Final = b"EDLp"
_HEADER: Final = struct.Struct("<4sB3xIQ")  # magic, kind, bytes of head, bytes of body
_MAX_HEAD_BYTES: Final = 1024 * 1024
_MAX_PIECES: Final = 512  # below IOV_MAX, 1024 on Linux
_RECORD_BYTES: Final = 16 * 1024  # of TLS


class Kind(IntEnum):
    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    REFUSED = 4
    PUSH = 5
    PUSH_ANSWER = 6
    PULL = 7
    PULL_ANSWER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Bounds of one connection."""

    frame_bytes: int = 1 << 30  # a body; a server's share of a model has to fit in it
    io_s: float = 30.0  # one socket operation within a frame: the peer stopped, or the network did
    idle_s: float = 3600.0  # between two frames of a trainer: its longest step, its longest pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The start of a frame; `body_bytes` are still to be received."""

    kind: Kind
    head: bytes
    body_bytes: int


class Channel:
    """One connected socket.  Not thread-safe.  Every method raises WireError, TimeoutError or another OSError.

    A plain socket blocks in the kernel with its deadline there (SO_RCVTIMEO), so that a large body is one call that
    holds no interpreter lock; Python's own time-outs would poll before each call and return for every few segments.
    """

    def __init__(self, sock: socket.socket, limits: WireLimits) -> None:
        self._sock, self._limits = sock, limits
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._arrivals = select.poll()
        self._arrivals.register(sock, select.POLLIN)
        self._header = bytearray(_HEADER.size)
        self._leaving: list[memoryview] = []
        if self._is_tls:
            sock.settimeout(limits.io_s)
        else:
            sock.settimeout(None)
            deadline = struct.pack("@ll", int(limits.io_s), int(limits.io_s % 1 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, deadline)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, deadline)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._sock.close()

    def send(self, kind: Kind, head: bytes, body: Sequence[memoryview] = (), *, more: bool = False) -> None:
        """Has handed the whole frame to the system when it returns.

        `more`: it leaves with the next frame, which is sent at once; each departure wakes the peer.
        """
        size = sum(piece.nbytes for piece in body)
        if size > self._limits.frame_bytes:
            raise FrameTooLargeError(f"{kind.name} to be sent", size_bytes=size, limit_bytes=self._limits.frame_bytes)
        self._leaving.append(memoryview(_HEADER.pack(MAGIC, kind, len(head), size) + head))
        self._leaving += [piece for piece in body if piece.nbytes]
        if more:
            return
        pieces, self._leaving = self._leaving, []
        if self._is_tls:
            for piece in _records(pieces):
                self._sock.sendall(piece)
        else:
            self._send_gathered(pieces)

    def has_input(self) -> bool:
        """Whether the peer has sent something that is here already."""
        if isinstance(self._sock, ssl.SSLSocket):
            return self._sock.pending() > 0 or bool(self._arrivals.poll(0))
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    def wait(self) -> Frame | None:
        """The next frame's start, however long it takes to begin, up to `idle_s`; None: the peer has closed."""
        waited_s = 0.0
        while True:
            try:
                got = self._receive_some(memoryview(self._header))
            except TimeoutError:
                waited_s += self._limits.io_s
                if waited_s >= self._limits.idle_s:
                    raise
            else:
                return self._frame(got) if got else None

    def receive(self) -> Frame:
        """The next frame's start, within `io_s`."""
        return self._frame(0)

    def receive_into(self, pieces: Sequence[memoryview]) -> None:
        """Fills the pieces with the body, in order."""
        for piece in pieces:
            self._receive_exactly(piece)

    def _frame(self, got: int) -> Frame:
        self._receive_exactly(memoryview(self._header)[got:])
        magic, kind, head_bytes, body_bytes = _HEADER.unpack(self._header)
        if magic != MAGIC:
            raise WireError(f"a frame begins with {magic!r}, not {MAGIC!r}: no EDL peer")
        if kind not in _KINDS:
            raise WireError(f"frame of unknown kind {kind}: another version of EDL?")
        if head_bytes > _MAX_HEAD_BYTES:
            raise FrameTooLargeError("head of a frame", size_bytes=head_bytes, limit_bytes=_MAX_HEAD_BYTES)
        if body_bytes > self._limits.frame_bytes:
            raise FrameTooLargeError("body of a frame", size_bytes=body_bytes, limit_bytes=self._limits.frame_bytes)
        head = bytearray(head_bytes)
        self._receive_exactly(memoryview(head))
        return Frame(kind=Kind(kind), head=bytes(head), body_bytes=body_bytes)

    def _receive_exactly(self, view: memoryview) -> None:
        view = view.cast("B")
        while view.nbytes:
            got = self._receive_some(view)
            if not got:
                raise ConnectionResetError("the peer closed the connection in the middle of a frame")
            view = view[got:]

    def _receive_some(self, view: memoryview) -> int:
        if self._is_tls:
            return self._sock.recv_into(view)
        try:
            return self._sock.recv_into(view, 0, socket.MSG_WAITALL)
        except BlockingIOError as error:
            raise TimeoutError(f"nothing came for {self._limits.io_s} s") from error

    def _send_gathered(self, pieces: list[memoryview]) -> None:
        at = 0
        while at < len(pieces):
            try:
                sent = self._sock.sendmsg(pieces[at : at + _MAX_PIECES])
            except BlockingIOError as error:
                raise TimeoutError(f"the peer took nothing for {self._limits.io_s} s") from error
            while at < len(pieces) and sent >= pieces[at].nbytes:
                sent -= pieces[at].nbytes
                at += 1
            if sent:
                pieces[at] = pieces[at][sent:]


_KINDS: Final = frozenset(int(kind) for kind in Kind)


def _records(pieces: Iterable[memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in whole TLS records: heads share one with the body beside them, nothing else is copied."""
    begun = bytearray()
    for piece in pieces:
        filled = min(piece.nbytes, _RECORD_BYTES - len(begun)) if begun else 0
        begun += piece[:filled]
        if len(begun) == _RECORD_BYTES:
            yield bytes(begun)
            begun.clear()
        whole = (piece.nbytes - filled) // _RECORD_BYTES * _RECORD_BYTES
        if whole:
            yield piece[filled : filled + whole]
        begun += piece[filled + whole :]
    if begun:
        yield bytes(begun)
