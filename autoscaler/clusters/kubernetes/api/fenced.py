"""Only the leader writes: an `Api` that asks for the right before every write.

The right comes from the Lease's own clock (`autoscaler.operator.lease`), so that a process that was stopped and goes on
has lost it before it can use it.  A write that has begun may still land; it is given up, here and by the server, after
`port.REQUEST_TIMEOUT_S`, and the leader lets go of its right at least that long before anybody may take the Lease.
Reads pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from autoscaler.clusters.kubernetes.api.around import AroundApi
from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.api.port import Api


class FencedApi(AroundApi):
    """`port.Api` whose writes raise NotLeadingError, with nothing sent, unless `may_write()` says yes."""

    def __init__(self, inner: Api, may_write: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._may_write = may_write

    def writing(self, verb: str, kind: Kind) -> AbstractContextManager[None]:
        """See `AroundApi.writing`."""
        self._check(f"{verb} {kind.plural}")
        return nullcontext()

    def _check(self, doing: str) -> None:
        if not self._may_write():
            raise NotLeadingError(f"{doing}: this process does not lead")
