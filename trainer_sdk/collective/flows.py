"""Bytes to and from several members of a group at once, in one thread, until all have passed or one has failed.

A flow is one direction of one connection during one operation; `Links.run` steps all flows of an operation and waits
in `poll` when none can go on.  Connections without a flow are watched meanwhile: a member that is lost fails the
operation also of those that do not talk to it.  A member that closed after it had finished the operation does not
(rule 82): its last frame says how many operations it has finished.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from trainer_sdk.errors import CollectiveAborted, CollectiveStalled, WireError
from trainer_sdk.transport.duplex import DuplexChannel
from trainer_sdk.transport.frames import Frame, FrameKind, pack_header

_GOODBYE: Final = struct.Struct("<Q")
_TEXT_BYTES: Final = 512
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A peer's host that answers nothing for 30 s is lost, however long its member computes; the system's default is 2 h.

A segment of this member's own that is on its way has the system's limit, which is longer; but the other end of that
connection then waits without any, and is the one that notices.
"""


class Link:
    """The connection to one member.  `finished`: collective operations it had finished when it closed, or None."""

    def __init__(self, rank: int, channel: DuplexChannel) -> None:
        self.rank, self.channel = rank, channel
        self.finished: int | None = None
        self.is_watched = True
        self.registered: int | None = None  # events that `poll` waits for; None: not registered


class Flow(Protocol):
    """One direction of one connection during one operation."""

    link: Link
    is_done: bool

    @property
    def events(self) -> int:
        """Events that `poll` waits for before the next step; 0: it waits for another flow of the same operation."""
        ...

    def step(self) -> bool:
        """Sends or receives what is possible at once; True if that was anything."""
        ...


class Outgoing:
    """Sends pieces, in order."""

    events = select.POLLOUT

    def __init__(self, link: Link, pieces: Sequence[bytes | memoryview]) -> None:
        self.link = link
        self._pieces = [piece for piece in pieces if len(piece)]
        self.is_done = not self._pieces

    def step(self) -> bool:
        if not (sent := self.link.channel.try_send(self._pieces)):
            return False
        at = 0
        while at < len(self._pieces) and sent >= len(self._pieces[at]):
            sent -= len(self._pieces[at])
            at += 1
        self._pieces = self._pieces[at:]
        if sent:
            self._pieces[0] = memoryview(self._pieces[0])[sent:]
        self.is_done = not self._pieces
        return True


class Incoming:
    """Receives one frame; `place` checks its start and returns where the body belongs, of its exact size."""

    events = select.POLLIN

    def __init__(self, link: Link, kind: FrameKind, place: Callable[[Frame], memoryview]) -> None:
        self.link = link
        self._kind, self._place = kind, place
        self._left: memoryview | None = None
        self.is_done = False

    def step(self) -> bool:
        if self._left is None:
            frame = take_frame(self.link, self._kind)
            if frame is None:
                return False
            self._left = self._place(frame)
            self.is_done = not len(self._left)
            return True
        got = self.link.channel.try_receive_into(self._left)
        self._left = self._left[got:]
        self.is_done = not len(self._left)
        return got > 0


def take_frame(link: Link, expected: FrameKind) -> Frame | None:
    """The start of the next frame, None if it is not there yet.  Raises WireError if it is of another kind."""
    frame = link.channel.try_receive_frame()
    if frame is None or frame.kind is expected:
        return frame
    match frame.kind:
        case FrameKind.GROUP_GOODBYE:
            raise WireError("it has left the group")
        case FrameKind.REFUSED:
            raise WireError(f"it refuses: {frame.text[:_TEXT_BYTES]}")
        case _:
            raise WireError(f"it sends {frame.kind.name} instead of {expected.name}: another operation")


class Links:
    """The connections of one group."""

    def __init__(self, idle_s: float) -> None:
        """`idle_s`: longest time in which no byte moves, before an operation fails."""
        self.by_rank: dict[int, Link] = {}
        self._by_descriptor: dict[int, Link] = {}
        self._poll = select.poll()
        self.idle_s = idle_s

    def add(self, link: Link) -> None:
        self.by_rank[link.rank] = link
        self._by_descriptor[link.channel.sock.fileno()] = link
        _keep_alive(link.channel.sock)

    def run(self, flows: Iterable[Flow], finished: int, *, until_s: float | None = None) -> None:
        """Carries out one operation; `finished` collective ones came before it.

        `until_s`: a deadline for all of it, instead of `idle_s` without a byte (monotonic clock).  Raises
        CollectiveStalled when `idle_s` has passed, CollectiveAborted at `until_s` or when a member is lost; an abort
        shuts the sockets down, which ends the wait in `poll` at once.
        """
        pending = [flow for flow in flows if not flow.is_done]
        for link in self.by_rank.values():
            link.is_watched = link.finished is None and not link.channel.has_ahead
        deadline_s = until_s if until_s is not None else time.monotonic() + self.idle_s
        has_rested = False
        while pending:
            if not _step(pending):
                self._wait(pending, finished, deadline_s, is_idle=until_s is None)
                has_rested = True
                continue
            pending = [flow for flow in pending if not flow.is_done]
            if has_rested and until_s is None:
                deadline_s, has_rested = time.monotonic() + self.idle_s, False

    def say_goodbye(self, finished: int, until_s: float) -> None:
        """Tells each member that this one has finished; who does not read until then is not told."""
        frame = pack_header(FrameKind.GROUP_GOODBYE, _GOODBYE.pack(finished), 0)
        pending = [Outgoing(link, [frame]) for link in self.by_rank.values() if link.finished is None]
        while pending:
            for flow in tuple(pending):
                try:
                    flow.step()
                except OSError:
                    flow.is_done = True
            pending = [flow for flow in pending if not flow.is_done]
            left_s = until_s - time.monotonic()
            if not pending or left_s <= 0:
                return
            poll = select.poll()
            for flow in pending:
                poll.register(flow.link.channel.sock, select.POLLOUT)
            poll.poll(left_s * 1e3)

    def _wait(self, pending: Iterable[Flow], finished: int, deadline_s: float, *, is_idle: bool) -> None:
        """Waits until a flow may go on.  Raises CollectiveAborted at the deadline, or if a member is lost."""
        wanted: dict[int, int] = {}
        for flow in pending:
            if flow.events:
                wanted[flow.link.rank] = wanted.get(flow.link.rank, 0) | flow.events
        for link in self.by_rank.values():
            self._register(link, wanted.get(link.rank) or (select.POLLIN if link.is_watched else None))
        events = self._poll.poll(max(0.0, deadline_s - time.monotonic()) * 1e3)
        if not events and time.monotonic() >= deadline_s:
            stalled = CollectiveStalled(tuple(sorted(wanted)), idle_s=self.idle_s)
            raise stalled if is_idle else CollectiveAborted(f"not done at the deadline: waited for {_names(wanted)}")
        for descriptor, happened in events:
            link = self._by_descriptor[descriptor]
            link.channel.woken(happened)
            if link.rank not in wanted:
                self._look(link, finished)

    def _register(self, link: Link, events: int | None) -> None:
        if events == link.registered:
            return
        if events is None:
            self._poll.unregister(link.channel.sock)
        else:
            self._poll.register(link.channel.sock, events)
        link.registered = events

    def _look(self, link: Link, finished: int) -> None:
        """Looks at a connection that has no flow.  Raises CollectiveAborted if its member is lost."""
        link.is_watched = False
        try:
            frame = link.channel.try_look_ahead()
        except (OSError, WireError) as error:
            raise CollectiveAborted(f"rank {link.rank}: {error}") from error
        if frame is None:
            link.is_watched = True
            return
        if frame.kind is not FrameKind.GROUP_GOODBYE:
            return  # of a later operation, which it may begin before this member ends this one
        if len(frame.head) != _GOODBYE.size:
            raise CollectiveAborted(f"rank {link.rank}: a goodbye of {len(frame.head)} bytes")
        link.finished = int(_GOODBYE.unpack(frame.head)[0])
        if link.finished <= finished:
            raise CollectiveAborted(f"rank {link.rank} has left the group before this operation")


def _keep_alive(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # elsewhere than on Linux some have other names
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _step(pending: Iterable[Flow]) -> bool:
    has_moved = False
    for flow in pending:
        try:
            has_moved |= flow.step()
        except (OSError, WireError) as error:
            raise CollectiveAborted(f"rank {flow.link.rank}: {error}") from error
    return has_moved


def _names(wanted: Iterable[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in sorted(wanted))
