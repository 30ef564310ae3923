"""Operations of one group of processes on host memory, which can be aborted at once from any thread (rules 67 to 82).

One operation at a time, in the same order at all members.  An operation that fails leaves streams in which nobody
knows his place, so the group is aborted with it: connections are shut down, which wakes the other members.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from trainer_sdk.collective.flows import Flow, Incoming, Link, Links, Outgoing
from trainer_sdk.collective.ring import Ring, RingReceive, RingSend, check_same_sum, reduce_head
from trainer_sdk.collective.sums import ElementArray, ElementType, bytes_of, element_type, sum_in_order, widen
from trainer_sdk.errors import CollectiveAborted, CollectiveStalled, FrameTooLargeError, UsageError, WireError
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.frames import Frame, FrameKind, pack_header

_GATHER: Final = struct.Struct("<Q")  # number of the operation
_STATE: Final = struct.Struct("<QB")  # number of the piece on this connection, 1 after the last
_DIRECT_BYTES: Final = 32 * 1024  # up to this size each sends to each: one round trip
_DIRECT_TOTAL_BYTES: Final = 256 * 1024  # and up to this size to all others together
_GOODBYE_S: Final = 5.0  # for peers that read; a stopped one is not waited for longer


class HostCollective:
    """One group.  `CollectiveListener.connect` makes it; `close` it in any case.

    Operations raise CollectiveAborted; `abort` may be called from any thread, operations from one at a time.
    """

    def __init__(self, *, rank: int, size: int, links: Links, cancellation: Cancellation) -> None:
        self.rank, self.size = rank, size
        self._links, self._cancellation = links, cancellation
        self._finished = 0  # collective operations
        self._pieces_to = [0] * size
        self._pieces_from = [0] * size
        self._operating = threading.Lock()
        self._sending: threading.Thread | None = None
        self._lock = threading.Lock()  # of `_reason`
        self._reason = ""
        self.stalled: CollectiveStalled | None = None  # what ended the group, if no byte moved for too long
        self._work = np.empty(0, dtype=np.float32)

    @property
    def reason(self) -> str:
        """Reason why the group is unusable; empty while it is usable."""
        return self._reason

    @property
    def bytes_sent(self) -> int:
        return sum(link.channel.bytes_sent for link in self._links.by_rank.values())

    @property
    def bytes_received(self) -> int:
        return sum(link.channel.bytes_received for link in self._links.by_rank.values())

    def all_reduce(self, array: ElementArray, dtype: str | None = None) -> None:
        """Replaces each element by its sum over all members, with the same bits at each of them.

        Equal arrays, ranks and size give equal bits.  `dtype`: "bfloat16" for an array of uint16 that holds such.
        Raises UsageError for an array that cannot be reduced in place, or that has another size or type at a member.
        """
        kind = element_type(array, dtype)
        with self._operation(), np.errstate(over="ignore", invalid="ignore"):
            if self.size > 1:
                head = reduce_head(self._finished, array.size, kind)
                (self._reduce_direct if self._is_small(array) else self._reduce_in_ring)(kind, array.reshape(-1), head)
            self._finished += 1

    def all_gather(self, data: bytes, max_bytes: int) -> list[bytes]:
        """The data of each member, by rank; each of them has at most `max_bytes`.  One round trip."""
        if len(data) > max_bytes:
            raise UsageError(f"all_gather: {len(data):,} bytes are more than max_bytes, {max_bytes:,}")
        gathered: list[bytearray] = [bytearray() for _ in range(self.size)]
        gathered[self.rank] = bytearray(data)
        with self._operation():
            head = _GATHER.pack(self._finished)

            def place(rank: int) -> Callable[[Frame], memoryview]:
                def into(frame: Frame) -> memoryview:
                    if frame.head != head:
                        raise WireError(f"its all_gather is another operation ({frame.head.hex()}, not {head.hex()})")
                    _check_size("all_gather", frame.body_bytes, max_bytes)
                    gathered[rank] = bytearray(frame.body_bytes)
                    return memoryview(gathered[rank])

                return into

            self._exchange(FrameKind.GROUP_GATHER, head, memoryview(data), place)
            self._finished += 1
        return [bytes(one) for one in gathered]

    def barrier(self) -> None:
        """Returns once every member has called it."""
        self.all_gather(b"", 0)

    def send_state(self, to: int, pieces: Iterable[memoryview]) -> int:
        """Streams the pieces to one member, which calls `receive_state`; returns the number of bytes."""
        link = self._peer(to)
        with self._operation():
            return self._send_pieces(link, pieces)

    def begin_sending(self, to: Sequence[int], pieces: Iterable[memoryview]) -> None:
        """Streams the pieces to these members, one after another, while the caller goes on: `send_state` in a thread.

        What the pieces show must not change any more.  The next operation waits until all have them, and raises
        CollectiveAborted if that failed.
        """
        links = [self._peer(rank) for rank in to]
        self._begin()

        def send() -> None:
            held: list[memoryview] = []
            try:
                for link in links:
                    self._send_pieces(link, held or _keep_in(held, pieces))
            except CollectiveAborted as error:
                self._end(error)
            except Exception as error:  # noqa: BLE001  told by the next operation, here and at every member
                self.abort(f"sending a state: {error!r}")
            finally:
                self._operating.release()

        sending = threading.Thread(target=send, name="edl-state", daemon=True)
        try:
            sending.start()
        except BaseException:  # no thread can be made
            self.abort("no thread could be started to send a state")
            self._operating.release()
            raise
        self._sending = sending

    def receive_state(self, from_rank: int, into: Callable[[int], memoryview], max_bytes: int) -> int:
        """Receives what one member sends by `send_state`; returns the number of bytes.

        `into` is given the size of each piece and returns the memory for it, of that size; it may raise, which aborts
        the group.  It is not asked for more than `max_bytes` in all.  After an error what was received is nothing.
        """
        link = self._peer(from_rank)
        total, is_last = 0, False
        with self._operation():
            while not is_last:

                def place(frame: Frame) -> memoryview:
                    nonlocal total, is_last
                    if len(frame.head) != _STATE.size:
                        raise WireError(f"a piece of state with a head of {len(frame.head)} bytes")
                    number, last = _STATE.unpack(frame.head)
                    if number != self._pieces_from[from_rank]:
                        raise WireError(f"piece {number} of state instead of {self._pieces_from[from_rank]}")
                    _check_size("state", total + frame.body_bytes, max_bytes)
                    is_last = bool(last)
                    total += frame.body_bytes
                    if not frame.body_bytes:
                        return memoryview(b"")
                    view = into(frame.body_bytes).cast("B")
                    if len(view) != frame.body_bytes:
                        raise UsageError(f"receive_state: memory of {len(view)} bytes for {frame.body_bytes}")
                    return view

                self._links.run([Incoming(link, FrameKind.GROUP_STATE, place)], self._finished)
                self._pieces_from[from_rank] += 1
        return total

    def check_usable(self) -> None:
        """Raises CollectiveAborted if the group was aborted or closed."""
        if self.stalled is not None:
            raise self.stalled
        if self._reason:
            raise CollectiveAborted(self._reason)

    def abort(self, reason: str) -> None:
        """Wakes every operation here and at the peers: they raise CollectiveAborted.  The first reason stays."""
        with self._lock:
            self._reason = self._reason or reason
        self._cancellation.cancel()

    def close(self) -> None:
        """Leaves the group; a peer that has not finished the last operation yet can finish it (rule 82)."""
        if not self._operating.acquire(blocking=False):
            self.abort("the group was closed during an operation")
            self._operating.acquire()  # not for long: the abort has shut down the sockets that the operation waits at
        self._end_sending()
        try:
            if not self._reason:
                self._links.say_goodbye(self._finished, time.monotonic() + _GOODBYE_S)
            self.abort("the group is closed")
            for link in self._links.by_rank.values():
                self._cancellation.close(link.channel.sock)
        finally:
            self._operating.release()

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """One operation; whatever ends it early aborts the group."""
        self._begin()
        try:
            self.check_usable()
            yield
        except CollectiveAborted as error:
            self._end(error)
            if error is self.stalled:
                raise
            raise CollectiveAborted(self.reason) from error
        except BaseException as error:
            self.abort(f"an operation ended early: {error!r}")
            raise
        finally:
            self._operating.release()

    def _end(self, error: CollectiveAborted) -> None:
        if isinstance(error, CollectiveStalled) and not self._reason:
            self.stalled = error
        self.abort(str(error))

    def _begin(self) -> None:
        self._end_sending()
        if not self._operating.acquire(blocking=False):
            self.check_usable()  # who closes an aborted group may be faster than the sender's thread
            raise UsageError("two operations of one group at once: call them from one thread, or in turns")

    def _end_sending(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.join()  # ends as an operation does: by `abort`, by the loss of a member, or by `idle_s`

    def _is_small(self, array: ElementArray) -> bool:
        if array.size < self.size:
            return True
        return array.nbytes <= _DIRECT_BYTES and array.nbytes * (self.size - 1) <= _DIRECT_TOTAL_BYTES

    def _reduce_direct(self, kind: ElementType, flat: ElementArray, head: bytes) -> None:
        parts = [flat if rank == self.rank else np.empty_like(flat) for rank in range(self.size)]

        def place(rank: int) -> Callable[[Frame], memoryview]:
            def into(frame: Frame) -> memoryview:
                check_same_sum(frame.head, head)
                if frame.body_bytes != flat.nbytes:
                    raise WireError(f"its all-reduce has {frame.body_bytes:,} bytes, not {flat.nbytes:,}")
                return bytes_of(parts[rank])

            return into

        self._exchange(FrameKind.GROUP_REDUCE, head, bytes_of(flat), place)
        sum_in_order(kind, parts, flat)

    def _reduce_in_ring(self, kind: ElementType, flat: ElementArray, head: bytes) -> None:
        summed = flat
        if kind.is_widened:
            if self._work.size < flat.size:
                self._work = np.empty(flat.size, dtype=kind.summed)
            summed = self._work[: flat.size]
            widen(kind, flat, summed)
        ring = Ring(kind, flat, summed, self.rank, self.size)
        after = self._links.by_rank[(self.rank + 1) % self.size]
        before = self._links.by_rank[(self.rank - 1) % self.size]
        header = pack_header(FrameKind.GROUP_REDUCE, head, ring.stream_bytes(ring.sent))
        self._links.run([RingReceive(before, ring, head), RingSend(after, ring, header)], self._finished)

    def _exchange(
        self, kind: FrameKind, head: bytes, data: memoryview, place: Callable[[int], Callable[[Frame], memoryview]]
    ) -> None:
        """Sends one frame to each member and receives one from each."""
        header = pack_header(kind, head, len(data))
        flows: list[Flow] = [Outgoing(link, [header, data]) for link in self._links.by_rank.values()]
        flows += [Incoming(link, kind, place(rank)) for rank, link in self._links.by_rank.items()]
        self._links.run(flows, self._finished)

    def _send_pieces(self, link: Link, pieces: Iterable[memoryview]) -> int:
        total = 0
        for piece in pieces:
            view = piece.cast("B") if piece.nbytes else memoryview(b"")
            self._send_piece(link, view, is_last=False)
            total += len(view)
        self._send_piece(link, memoryview(b""), is_last=True)
        return total

    def _send_piece(self, link: Link, view: memoryview, *, is_last: bool) -> None:
        head = _STATE.pack(self._pieces_to[link.rank], is_last)
        self._pieces_to[link.rank] += 1
        header = pack_header(FrameKind.GROUP_STATE, head, len(view))
        self._links.run([Outgoing(link, [header, view])], self._finished)

    def _peer(self, rank: int) -> Link:
        link = self._links.by_rank.get(rank)
        if link is None:
            raise UsageError(
                f"rank {rank} is no other member of a group of {self.size} in which this is rank {self.rank}"
            )
        return link


def _keep_in(held: list[memoryview], pieces: Iterable[memoryview]) -> Iterator[memoryview]:
    """The pieces, one by one as they are made; `held` has those that were given."""
    for piece in pieces:
        held.append(piece)
        yield piece


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise FrameTooLargeError(what, size_bytes=size, limit_bytes=most)
