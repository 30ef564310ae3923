"""Buckets to and from other servers: what arrives is staged, what couriers take along is packed as they set out.

Which copies are wanted is the core's matter (`moving`); what one must look like is in `contents`.
"""

from __future__ import annotations

from master.api.identities import MemberName
from trainer_sdk.pserver import moving
from trainer_sdk.pserver.couriers import Couriers, Post
from trainer_sdk.pserver.messages import CopyArrived, CopyHead, FullWanted, SendCopy, StageCopy
from trainer_sdk.pserver.parcels import Parcel, contents_in, packed
from trainer_sdk.pserver.shell import Shell
from trainer_sdk.pserver.wire_copies import CopyStatus


class Copies:
    """Of one server, thread-safe."""

    def __init__(self, name: MemberName, shell: Shell) -> None:
        self._shell = shell
        post = Post(pack=self._pack, full_wanted=self._full_wanted)
        self._couriers = Couriers(name, shell.outside.security, post)

    def send(self, order: SendCopy) -> None:
        """Does not block; may be called under the lock."""
        self._couriers.send(order)

    def close(self) -> None:
        """Copies under way are broken off."""
        self._couriers.close()

    def judge(self, head: CopyHead) -> CopyStatus | None:
        """The answer to a copy whose body would change nothing; None: `take` wants the body."""
        shell = self._shell
        with shell.lock:
            if shell.model is None or shell.state.lineage != head.lineage:
                return CopyStatus.ARRIVED  # of another lineage: its sender will hear of it from the master
            if head.base:
                return CopyStatus.NEED_FULL  # this release neither sends differences nor builds on them (ADR 0313)
            if moving.wants(shell.state, head):
                return None
            shell.handle(CopyArrived(head=head))  # of what is here already: INSTALLED, once more
        return CopyStatus.ARRIVED

    def take(self, head: CopyHead, body: memoryview) -> CopyStatus:
        """Stages a bucket that another server has sent, if it is meant for this process now; keeps `body`.

        Raises WireError or TableError for what is no bucket of this job, and nothing has changed.
        """
        shell = self._shell
        with shell.lock:
            model = shell.model if shell.state.lineage == head.lineage else None
        if model is None:
            return CopyStatus.ARRIVED  # of another lineage: its sender will hear of it from the master
        if head.base:
            return CopyStatus.NEED_FULL  # this release neither sends differences nor builds on them (ADR 0313)
        contents = contents_in(head, body, model.layout)
        with shell.lock:
            for effect in shell.handle(CopyArrived(head=head)):
                if isinstance(effect, StageCopy):
                    shell.staged[head.bucket] = contents
        return CopyStatus.ARRIVED

    def _pack(self, order: SendCopy) -> Parcel | None:
        """The bucket as it is now; None: it is not to be sent any more.

        What is frozen does not change, whatever goes on beside it, so it is copied without the lock; should it have
        been opened or dropped meanwhile, what was copied is worthless.
        """
        shell = self._shell
        with shell.lock:
            current, model = moving.try_current(shell.state, order), shell.model
            if current is None or model is None:
                return None
            contents = [] if order.is_final else list(model.content(order.bucket))
        if order.is_final:
            contents = list(model.content(order.bucket))
            with shell.lock:
                if moving.try_current(shell.state, order) != current:
                    return None
        return packed(current, contents, model.layout)

    def _full_wanted(self, order: SendCopy) -> None:
        wanted = FullWanted(lineage=order.lineage, bucket=order.bucket, version=order.version, target=order.target)
        self._shell.control(wanted)
