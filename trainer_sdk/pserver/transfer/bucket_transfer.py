"""Buckets to and from other servers: what arrives is staged, what couriers take along is packed as they set out.

A bucket's rows go ahead of it, and what was written since goes when it is frozen (rule 42): the master's FREEZE waits
for that in `freezing`.  Which copies are wanted is the core's matter (`moving`); what one must look like is in
`contents`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from master.api.identities import BucketId, MemberName, Version
from master.api.messages import Freeze, Warm
from trainer_sdk.pserver.core import bucket_moves
from trainer_sdk.pserver.core.effects import (
    CopyArrived,
    FullCopyRequested,
    RequestFullCopy,
    SendCopy,
    ServerEffect,
    StageCopy,
)
from trainer_sdk.pserver.core.freeze_queue import FreezeQueue
from trainer_sdk.pserver.core.messages import CopyHead
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
    """Of one server, thread-safe."""

    def __init__(self, name: MemberName, shell: Shell) -> None:
        self._shell = shell
        self._freezing = FreezeQueue()
        self._watched: dict[BucketId, Freeze] = {}  # the move for which its rows set out last
        self._ahead: dict[BucketId, CopyHead] = {}  # what has gone ahead, and is watched since
        post = SenderHooks(pack=self._pack, full_wanted=self._full_wanted, ended=self._ended)
        self._couriers = BucketSender(name, shell.context.security, post)

    def send(self, order: SendCopy) -> None:
        """Does not block; called under the lock."""
        is_taken = self._couriers.send(order)
        if order.is_final and is_taken:
            self._freezing.mark_sent(order, self._weigh(order.bucket))
        elif not is_taken:
            self._freezing.drop(_freeze(order))

    def forget_all(self) -> None:
        """Another lineage begins: no order, copy or watch of this one means anything in it.  Under the lock."""
        self._freezing = FreezeQueue()
        self._watched.clear()
        self._ahead.clear()
        if self._shell.model is not None:
            self._shell.model.end_watches()

    def end_watches(self) -> None:
        """Of buckets that have another version by now: their rows went ahead for a move that is over."""
        with self._shell.lock:
            model, versions = self._shell.model, bucket_moves.versions_of(self._shell.state, self._watched)
            for bucket in [bucket for bucket, order in self._watched.items() if versions.get(bucket) != order.version]:
                del self._watched[bucket]
                self._ahead.pop(bucket, None)
                if model is not None:
                    model.end_watch(bucket)

    def close(self) -> None:
        """Copies under way are broken off."""
        self._couriers.close()

    # ---- to another server ------------------------------------------------------------------------------------------

    def freeze(self, order: Freeze) -> None:
        """Its rows go ahead first; then it is frozen, and what is new goes after them."""
        with self._shell.lock:
            model = self._shell.model
            if model is None or not 0 <= order.bucket < model.layout.bucket_count:
                return  # nothing of it is here
            if not self._freezing.has(order):
                self._freezing.add(order)
                if not self._goes_ahead(order, model):
                    self._freezing.mark_ready(order)
            self._freeze_due()

    def _goes_ahead(self, order: Freeze, model: Model) -> bool:
        """Not what has no rows, and not what is frozen already or no longer meant."""
        if not model.row_count(order.bucket):
            return False
        warm = Warm(lineage=order.lineage, bucket=order.bucket, version=order.version, target=order.target)
        return bool(self._shell.handle(warm))

    def _freeze_due(self) -> None:
        """An order whose move is over freezes nothing, and no courier would say that the next one's turn has come."""
        while orders := self._freezing.take_due(self._weigh):
            for order in orders:
                self._shell.handle(order)

    def _weigh(self, bucket: BucketId) -> int:
        return self._shell.model.rest_bytes(bucket) if self._shell.model else 0

    def _ended(self, order: SendCopy, head: CopyHead | None) -> None:
        """A courier has done what it can."""
        with self._shell.lock:
            if order.is_final:
                self._freezing.mark_ended(order)
            elif head is None:
                self._freezing.drop(_freeze(order))
            else:
                if self._watched.get(order.bucket) == _freeze(order):
                    self._ahead[order.bucket] = head
                self._freezing.mark_ready(_freeze(order))
            self._freeze_due()

    def _pack(self, order: SendCopy) -> PackedBucket | None:
        """The bucket as it is now; None: it is not to be sent any more.

        Copied without the lock.  What is frozen does not change; what goes ahead may, and is sent again then.  What was
        copied is worthless should the bucket have been opened or dropped meanwhile.
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
        """Digest of what that target has of that version already; empty: nothing that a difference could build on."""
        head = self._ahead.get(order.bucket)
        if head is None or not order.is_final or order.is_full:
            return ""
        is_same = (head.lineage, head.version, head.target) == (order.lineage, order.version, order.target.incarnation)
        return head.digest if is_same else ""

    def _full_wanted(self, order: SendCopy) -> None:
        wanted = FullCopyRequested(
            lineage=order.lineage, bucket=order.bucket, version=order.version, target=order.target
        )
        self._shell.control(wanted)

    # ---- from another server ----------------------------------------------------------------------------------------

    def judge(self, head: CopyHead) -> CopyStatus | None:
        """The answer to a copy whose body would change nothing; None: `take` wants the body."""
        shell = self._shell
        with shell.lock:
            if shell.model is None or shell.state.lineage != head.lineage:
                return CopyStatus.ARRIVED  # of another lineage: its sender will hear of it from the master
            if bucket_moves.can_stage(shell.state, head) and bucket_moves.has_base(shell.state, head):
                return None
            return _status(shell.handle(CopyArrived(head=head)))  # of what is here already: INSTALLED, once more

    def body(self, size_bytes: int) -> memoryview:
        """Memory into which a copy is to be received, for `take`."""
        with self._shell.lock:
            spare = self._shell.staged.take_spare(size_bytes)
        return new_buffer(size_bytes) if spare is None else spare

    def take(self, head: CopyHead, body: memoryview) -> CopyStatus:
        """Stages a bucket that another server has sent, if it is meant for this process now; keeps `body`.

        Raises WireError or TableError for what is no bucket of this job, and nothing has changed.
        """
        shell = self._shell
        with shell.lock:
            model = shell.model if shell.state.lineage == head.lineage else None
        if model is None:
            return CopyStatus.ARRIVED  # of another lineage: its sender will hear of it from the master
        contents = unpack_bucket(head, body, model.layout)
        self._make_ready(head.bucket, contents, model)
        with shell.lock:
            effects = shell.handle(CopyArrived(head=head))
            if any(isinstance(effect, StageCopy) for effect in effects):
                shell.staged.put(head.bucket, contents, body, is_difference=bool(head.base))
            return _status(effects)

    def _make_ready(self, bucket: BucketId, contents: BucketContents, model: Model) -> None:
        """So that it goes in at once when it is served: trainers wait for that."""
        rows: Counter[str] = Counter()
        with self._shell.lock:
            for table, count in chain(row_counts_of(contents), self._shell.staged.row_counts()):
                rows[table] += count
            steps = model.populators(bucket, rows)
        for step in steps:
            step()


def _freeze(order: SendCopy) -> Freeze:
    """The order of the master that this copy is for."""
    left = Version(order.version - 1)  # the version that its source has
    return Freeze(lineage=order.lineage, bucket=order.bucket, version=left, target=order.target)


def _status(effects: Iterable[ServerEffect]) -> CopyStatus:
    is_lacking = any(isinstance(effect, RequestFullCopy) for effect in effects)
    return CopyStatus.NEED_FULL if is_lacking else CopyStatus.ARRIVED
