"""Transfer of buckets between servers: copies that arrive are staged, copies that leave are packed just in time.

A bucket's rows are sent ahead, and the rows written since follow when it is frozen (rule 42); until the rows are there
the master's FREEZE waits in `core.freeze_queue`.  `core.bucket_moves` decides which copies are staged, and
`tables.bucket_codec` checks their contents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from master.api.identities import BucketId, MemberName, Version
from master.api.messages.to_members import Freeze
from trainer_sdk.pserver.core import bucket_moves
from trainer_sdk.pserver.core.freeze_queue import FreezeQueue
from trainer_sdk.pserver.core.messages import CopyHead
from trainer_sdk.pserver.core.server_events import (
    CopyArrived,
    FullCopyRequested,
    RequestFullCopy,
    SendCopy,
    ServerEffect,
    StageCopy,
    WarmCopyRequested,
)
from trainer_sdk.pserver.shell import Shell
from trainer_sdk.pserver.tables.bucket_codec import BucketContents
from trainer_sdk.pserver.tables.model import Model, Portion
from trainer_sdk.pserver.tables.staging_area import new_buffer, row_counts_of
from trainer_sdk.pserver.transfer.bucket_sender import (
    BucketSender,
    PackedBucket,
    SenderHooks,
    pack_bucket,
    unpack_bucket,
)
from trainer_sdk.pserver.wire.peer_heads import CopyStatus


class BucketTransfer:
    """Bucket transfers of one server.  Thread-safe."""

    def __init__(self, name: MemberName, shell: Shell) -> None:
        self._shell = shell
        self._freezes = FreezeQueue()
        self._watched: dict[BucketId, Freeze] = {}  # the move for which its rows were packed last
        self._ahead: dict[BucketId, CopyHead] = {}  # the copy sent ahead of a watched bucket
        hooks = SenderHooks(pack=self._pack, full_copy_needed=self._request_full_copy, ended=self._finish)
        self._sender = BucketSender(name, shell.context.security, hooks)

    def send(self, order: SendCopy) -> None:
        """Queues the copy without blocking; called under the lock."""
        is_taken = self._sender.send(order)
        if order.is_final and is_taken:
            self._freezes.mark_sent(order, self._rest_bytes(order.bucket))
        elif not is_taken:
            self._freezes.drop(_freeze(order))

    def forget_all(self) -> None:
        """Drops orders, copies and watches, because another lineage begins.  Called under the lock."""
        self._freezes = FreezeQueue()
        self._watched.clear()
        self._ahead.clear()
        if self._shell.model is not None:
            self._shell.model.end_watches()

    def end_watches(self) -> None:
        """Ends the watches of buckets that have another version by now: the move for them is over."""
        with self._shell.lock:
            model, versions = self._shell.model, bucket_moves.versions_of(self._shell.state, self._watched)
            for bucket in [bucket for bucket, order in self._watched.items() if versions.get(bucket) != order.version]:
                del self._watched[bucket]
                self._ahead.pop(bucket, None)
                if model is not None:
                    model.end_watch(bucket)

    def close(self) -> None:
        """Breaks off copies on their way."""
        self._sender.close()

    # ---- to another server ------------------------------------------------------------------------------------------

    def freeze(self, order: Freeze) -> None:
        """Sends the bucket's rows ahead, then freezes it; the rows written since follow."""
        with self._shell.lock:
            model = self._shell.model
            if model is None or not 0 <= order.bucket < model.layout.bucket_count:
                return  # the bucket is not here
            if not self._freezes.has(order):
                self._freezes.add(order)
                if not self._goes_ahead(order, model):
                    self._freezes.mark_ready(order)
            self._freeze_due()

    def _goes_ahead(self, order: Freeze, model: Model) -> bool:
        """True if rows are sent ahead: not without rows, nor for a bucket that is frozen or of another version."""
        if not model.row_count(order.bucket):
            return False
        requested = WarmCopyRequested(
            lineage=order.lineage, bucket=order.bucket, version=order.version, target=order.target
        )
        return bool(self._shell.handle(requested))

    def _freeze_due(self) -> None:
        """Freezes due buckets; repeats, because an order whose move is over freezes nothing and ends no copy."""
        while orders := self._freezes.take_due(self._rest_bytes):
            for order in orders:
                self._shell.handle(order)

    def _rest_bytes(self, bucket: BucketId) -> int:
        return self._shell.model.rest_bytes(bucket) if self._shell.model else 0

    def _finish(self, order: SendCopy, head: CopyHead | None) -> None:
        """The sender is done with this order; `head`: the copy that the target has now."""
        with self._shell.lock:
            if order.is_final:
                self._freezes.mark_ended(order)
            elif head is None:
                self._freezes.drop(_freeze(order))
            else:
                if self._watched.get(order.bucket) == _freeze(order):
                    self._ahead[order.bucket] = head
                self._freezes.mark_ready(_freeze(order))
            self._freeze_due()

    def _pack(self, order: SendCopy) -> PackedBucket | None:
        """The bucket as it is now; None if its move is over.

        Copied without the lock: a frozen bucket does not change, and rows that change while they are sent ahead are
        sent again.  The copy is dropped if the bucket was activated or dropped meanwhile.
        """
        shell, bucket = self._shell, order.bucket
        with shell.lock:
            current, model = bucket_moves.try_current(shell.state, order), shell.model
            if current is None or model is None:
                return None
            base = self._base(order)
            if not order.is_final:
                self._watched[bucket] = _freeze(order)
                self._ahead.pop(bucket, None)
                model.watch(bucket)
        portion = (Portion.REST if base else Portion.ALL) if order.is_final else Portion.ROWS
        contents = list(model.content(bucket, portion))
        with shell.lock:
            if bucket_moves.try_current(shell.state, order) is None or shell.model is not model:
                return None
        return pack_bucket(current, contents, model.layout, base)

    def _base(self, order: SendCopy) -> str:
        """Digest of the copy that the target already has, as base of a difference; empty if there is none."""
        head = self._ahead.get(order.bucket)
        if head is None or not order.is_final or order.is_full:
            return ""
        is_same = (head.lineage, head.version, head.target) == (order.lineage, order.version, order.target.incarnation)
        return head.digest if is_same else ""

    def _request_full_copy(self, order: SendCopy) -> None:
        wanted = FullCopyRequested(
            lineage=order.lineage, bucket=order.bucket, version=order.version, target=order.target
        )
        self._shell.control(wanted)

    # ---- from another server ----------------------------------------------------------------------------------------

    def try_answer(self, head: CopyHead) -> CopyStatus | None:
        """The answer to a copy whose body is not needed; None: receive the body and call `stage`."""
        shell = self._shell
        with shell.lock:
            if shell.model is None or shell.state.lineage != head.lineage:
                return CopyStatus.ARRIVED  # the master notifies the sender of the lineage
            if bucket_moves.can_stage(shell.state, head) and bucket_moves.has_base(shell.state, head):
                return None
            return _status(shell.handle(CopyArrived(head=head)))  # a repeat: INSTALLED is reported again

    def body(self, size_bytes: int) -> memoryview:
        """Memory for the body of a copy, which goes to `stage`."""
        with self._shell.lock:
            spare = self._shell.staged.take_spare(size_bytes)
        return new_buffer(size_bytes) if spare is None else spare

    def stage(self, head: CopyHead, body: memoryview) -> CopyStatus:
        """Stages a copy from another server if it is still meant for this process; keeps `body`.

        Raises WireError or TableError, and changes nothing, for bytes that are no bucket of this job.
        """
        shell = self._shell
        with shell.lock:
            model = shell.model if shell.state.lineage == head.lineage else None
        if model is None:
            return CopyStatus.ARRIVED  # the master notifies the sender of the lineage
        contents = unpack_bucket(head, body, model.layout)
        self._populate(head.bucket, contents, model)
        with shell.lock:
            effects = shell.handle(CopyArrived(head=head))
            if any(isinstance(effect, StageCopy) for effect in effects):
                shell.staged.put(head.bucket, contents, body, is_difference=bool(head.base))
            return _status(effects)

    def _populate(self, bucket: BucketId, contents: BucketContents, model: Model) -> None:
        """Makes memory ready, so that serving the bucket is quick: trainers wait for it."""
        rows: Counter[str] = Counter()
        with self._shell.lock:
            for table, count in chain(row_counts_of(contents), self._shell.staged.row_counts()):
                rows[table] += count
            steps = model.populators(bucket, rows)
        for step in steps:
            step()


def _freeze(order: SendCopy) -> Freeze:
    """The master's order that this copy is for."""
    left = Version(order.version - 1)  # the version that its source has
    return Freeze(lineage=order.lineage, bucket=order.bucket, version=left, target=order.target)


def _status(effects: Iterable[ServerEffect]) -> CopyStatus:
    is_lacking = any(isinstance(effect, RequestFullCopy) for effect in effects)
    return CopyStatus.NEED_FULL if is_lacking else CopyStatus.ARRIVED
