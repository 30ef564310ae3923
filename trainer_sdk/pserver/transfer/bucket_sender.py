"""Bucket copies on their way to other servers: one thread for each target, and the encoding of a bucket copy.

A FREEZE must not wait for a network, and a target that has stopped must not delay copies to others.  So the server
queues its orders here and continues; a target's thread packs the content under the lock for a moment, sends it without
the lock, and retries within a budget.  A failure is logged and not reported: the master orders it again, or undoes the
move (rule 53).  Each target gets one copy at a time, so it never receives more of them at once than there are other
servers; copies of frozen buckets, for which pushes wait, go before copies of buckets that are not frozen yet.

Copies share their links with pushes and pulls.  Left to itself a connection fills the queue of the slowest port on its
way, and every other packet waits there or is lost: one push took 270 ms.  So few bytes are in the network at once
(BUFFER_BYTES): enough for 100 MB/s where an answer takes a millisecond, too few to fill a queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from master.api.identities import Incarnation, MemberName, ServerPlace
from trainer_sdk.errors import AuthenticationError, CheckpointError, TemporaryError, WireError
from trainer_sdk.pserver.core.messages import CopyHead
from trainer_sdk.pserver.core.server_events import SendCopy
from trainer_sdk.pserver.tables.bucket_codec import BucketContents, check_contents, decode_bucket, encode_bucket
from trainer_sdk.pserver.tables.layout import Array, Layout
from trainer_sdk.pserver.wire.peer_heads import CopyStatus, copy_digest, decode_copy_answer, encode_copy
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.frames import FrameKind, WireLimits
from trainer_sdk.transport.handshake import PeerRole
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings, ServerConnection

log = logging.getLogger(__name__)

BUDGET_S: Final = 8.0  # for one copy, all attempts; less than a master waits for one (`JobConfig.move_timeout_ns`)
BUFFER_BYTES: Final = 96 << 10  # on their way to one server; the system doubles it
_PAUSE_S: Final = 0.1  # after the first failed attempt, doubled after each
_LONGEST_PAUSE_S: Final = 1.6
_JOIN_S: Final = 0.1
_IDLE_S: Final = 10.0  # then the connection is closed
_MAX_WAITING: Final = 64  # orders for one target; a master moves a few buckets at once


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderHooks:
    """Callbacks of the sender's threads.

    `pack` returns None if the copy is not needed any more.  `full_copy_needed`: the target lacks the base.  `ended` is
    called once for each accepted order, with the copy that the target has now, or None if that is not known.
    """

    pack: Callable[[SendCopy], PackedBucket | None]
    full_copy_needed: Callable[[SendCopy], None]
    ended: Callable[[SendCopy, CopyHead | None], None]


class BucketSender:
    """Sends copies of one server's buckets.  `send` may be called from any thread and does not block."""

    def __init__(self, name: MemberName, security: Security, hooks: SenderHooks) -> None:
        self._security, self._hooks = security, hooks
        self._settings = ConnectionSettings(
            name=name,
            role=PeerRole.SERVER,
            limits=WireLimits(io_s=BUDGET_S),
            budget_s=BUDGET_S,
            buffer_bytes=BUFFER_BYTES,
        )
        self._cancellation = Cancellation()
        self._waiting: dict[Incarnation, deque[SendCopy]] = {}  # by target, for each that has a thread
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()

    def send(self, order: SendCopy) -> bool:
        """Queues the order behind those for its target (rule 43); False if it is refused.

        An order that is on its way is not queued twice and goes again only if the first does not arrive: a link that
        needs seconds for a bucket must not carry each twice.
        """
        with self._changed:
            if self._cancellation.is_cancelled:
                return False
            orders = self._waiting.get(order.target.incarnation)
            if orders is None:
                orders = deque()
                thread = threading.Thread(
                    target=self._serve, args=(order.target, orders), name="bucket sender", daemon=True
                )
                thread.start()  # may raise: a target without a thread must not stand in `_waiting`
                self._threads = {one for one in self._threads if one.is_alive()} | {thread}
                self._waiting[order.target.incarnation] = orders
            if any(_is_same(order, other) for other in orders):
                return True
            if len(orders) >= _MAX_WAITING:
                log.warning("bucket %d is not sent to %s: too many wait", order.bucket, order.target.name)
                return False
            orders.append(order)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Breaks off copies on their way; no other begins."""
        self._cancellation.cancel()
        with self._changed:
            self._changed.notify_all()
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(_JOIN_S)

    def _serve(self, target: ServerPlace, orders: deque[SendCopy]) -> None:
        """Thread of one target.  However it ends, the next order for that target starts another."""
        try:
            context = self._security.client_context()
            connection = ServerConnection(target, self._security, self._settings, context, self._cancellation)
            with closing(connection):
                while (order := self._next(target, orders)) is not None:
                    self._end(order, self._deliver_safely(connection, order, orders))
        except Exception:
            log.exception("nothing can be sent to %s", target.name)
        finally:
            with self._changed:
                self._forget(target, orders)
            for order in orders:
                self._end(order, None)

    def _deliver_safely(
        self, connection: ServerConnection, order: SendCopy, orders: deque[SendCopy]
    ) -> CopyHead | None:
        """Delivers the copy; returns the head of what the target has now."""
        try:
            if (head := self._deliver(connection, order)) is not None:
                self._drop_repeats(orders, order)
        except Exception:  # no memory, for example: the other orders continue
            connection.close()
            log.exception("bucket %d did not reach %s", order.bucket, order.target.name)
            return None
        return head

    def _end(self, order: SendCopy, head: CopyHead | None) -> None:
        try:
            self._hooks.ended(order, head)
        except Exception:  # the process ends over it; other orders need not
            log.exception("copy of bucket %d to %s", order.bucket, order.target.name)

    def _next(self, target: ServerPlace, orders: deque[SendCopy]) -> SendCopy | None:
        """The next order; None ends the thread: no order came for long, or the sender is closed."""
        with self._changed:
            self._changed.wait_for(lambda: orders or self._cancellation.is_cancelled, _IDLE_S)
            if orders and not self._cancellation.is_cancelled:
                order = next((order for order in orders if order.is_final), orders[0])
                orders.remove(order)
                return order
            self._forget(target, orders)
            return None

    def _forget(self, target: ServerPlace, orders: deque[SendCopy]) -> None:
        if self._waiting.get(target.incarnation) is orders:
            del self._waiting[target.incarnation]

    def _drop_repeats(self, orders: deque[SendCopy], order: SendCopy) -> None:
        with self._changed:
            for other in [other for other in orders if _is_same(order, other)]:
                orders.remove(other)

    def _deliver(self, connection: ServerConnection, order: SendCopy) -> CopyHead | None:
        """Sends the copy, again until the deadline; returns its head once it has arrived."""
        deadline_s, pause_s = time.monotonic() + BUDGET_S, _PAUSE_S
        while (packed := self._hooks.pack(order)) is not None:
            try:
                return packed.head if self._send_copy(connection, order, packed, deadline_s) else None
            except (OSError, TemporaryError) as error:
                connection.close()
                if time.monotonic() + pause_s > deadline_s or self._cancellation.is_cancelled:
                    log.warning("bucket %d did not reach %s: %s", order.bucket, order.target.name, error)
                    return None
                self._cancellation.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except (WireError, AuthenticationError) as error:
                connection.close()
                log.warning("bucket %d cannot go to %s: %s", order.bucket, order.target.name, error)
                return None
        return None

    def _send_copy(
        self, connection: ServerConnection, order: SendCopy, packed: PackedBucket, deadline_s: float
    ) -> bool:
        """Sends the copy once; False if the target lacks the base.  Raises as `_send_frame`, by the deadline."""
        with connection.wake_at(deadline_s):
            status = _send_frame(connection, packed, deadline_s)
        log.debug("%s", order)  # failpoint: logged before anything follows from it
        if status is CopyStatus.NEED_FULL:
            self._hooks.full_copy_needed(order)
        return status is CopyStatus.ARRIVED


def _send_frame(connection: ServerConnection, packed: PackedBucket, deadline_s: float) -> CopyStatus:
    """The target's answer.  Raises OSError, ServerUnavailableError, WireError or AuthenticationError."""
    channel = connection.channel(deadline_s)
    channel.send(FrameKind.COPY, encode_copy(packed.head), packed.body)
    frame = channel.receive()
    if frame.kind is not FrameKind.COPY_ANSWER:
        raise WireError(f"refused: {frame.text}")
    return decode_copy_answer(frame.head)


def _is_same(one: SendCopy, other: SendCopy) -> bool:
    return (one.lineage, one.bucket, one.version, one.is_final, one.is_full) == (
        other.lineage,
        other.bucket,
        other.version,
        other.is_final,
        other.is_full,
    )


class PackedBucket(NamedTuple):
    """A bucket ready to be sent."""

    head: CopyHead
    body: Sequence[memoryview]


def pack_bucket(
    order: SendCopy, contents: Sequence[tuple[str, Mapping[str, Array]]], layout: Layout, base: str = ""
) -> PackedBucket:
    """Packs the whole content, or a difference to that with the digest `base`; arrays are not copied."""
    body = encode_bucket(contents, layout.bucket_count)
    return PackedBucket(order.head(copy_digest(body, base), base), body)


def unpack_bucket(head: CopyHead, body: memoryview, layout: Layout) -> BucketContents:
    """The content as views of `body`.  Raises WireError or TableError unless digest and tables agree."""
    what = f"copy of bucket {head.bucket}"
    if not 0 <= head.bucket < layout.bucket_count:
        raise WireError(f"{what}: there are {layout.bucket_count} buckets")
    if copy_digest([body], head.base) != head.digest:
        raise WireError(f"{what}: it does not have its digest, it was altered on the way")
    try:
        contents = decode_bucket(what, body, layout.bucket_count)
    except CheckpointError as error:
        raise WireError(str(error)) from error
    check_contents(layout, head.bucket, contents, has_dense=head.is_final)
    return contents
