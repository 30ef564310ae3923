"""Members' streams: the sending half of each, and which member is on which stream.

The writer adds messages without waiting; each stream sends what has gathered as one envelope.  A member that does not
read loses its stream once `limit` messages wait, so a slow reader delays no other; it reconnects and requests again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from master.api.messages.to_members import MasterMessage
from master.job.domain.durable_records import MemberKey

log: Final = logging.getLogger(__name__)

MAX_WAITING_MESSAGES: Final = 4096


class MemberStream:
    """One connection.  `member` is who registered last on it."""

    def __init__(self, peer: str, *, limit: int = MAX_WAITING_MESSAGES) -> None:
        self.peer = peer
        self.member: MemberKey | None = None
        self.end_reason = ""  # why it ends, once it does
        self.wrong = ""  # why a message of the member was refused
        self._limit = limit
        self._waiting: list[MasterMessage] = []
        self._wake = asyncio.Event()

    def send(self, message: MasterMessage) -> None:
        """The message leaves with the next envelope, unless the stream is ending."""
        if self.end_reason:
            return
        if len(self._waiting) >= self._limit:
            self._waiting.clear()
            self.finish(f"{self._limit} messages wait for a member that does not read")
            return
        self._waiting.append(message)
        self._wake.set()

    def finish(self, reason: str) -> None:
        """The stream ends after what was sent before."""
        if not self.end_reason:
            self.end_reason = reason or "closed"
            self._wake.set()

    def abandon(self, reason: str) -> None:
        """End the stream and send nothing more on it: this master must not send any more."""
        self._waiting.clear()
        self.finish(reason)

    async def take(self) -> list[MasterMessage]:
        """The messages that have gathered, at least one; empty: the stream has ended."""
        while not self._waiting and not self.end_reason:
            self._wake.clear()
            await self._wake.wait()
        taken, self._waiting = self._waiting, []
        return taken


class MemberStreams:
    """The open streams, and the newest stream of each member."""

    def __init__(self) -> None:
        self._by_member: dict[MemberKey, MemberStream] = {}
        self._open: set[MemberStream] = set()

    def __iter__(self) -> Iterator[MemberStream]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def open(self, stream: MemberStream) -> None:
        self._open.add(stream)

    def register(self, stream: MemberStream, member: MemberKey) -> MemberKey | None:
        """Messages to the member go to this stream from now on; its older stream ends.

        Answers the member whose newest stream this was until now, if that is another one.
        """
        before = self._by_member.get(member)
        if before is not None and before is not stream:
            before.finish("the member has opened another stream")
        previous, stream.member = stream.member, member
        self._by_member[member] = stream
        if previous is None or previous == member or self._by_member.get(previous) is not stream:
            return None
        del self._by_member[previous]
        return previous

    def close(self, stream: MemberStream) -> MemberKey | None:
        """The member, when this was its newest stream."""
        self._open.discard(stream)
        if stream.member is None or self._by_member.get(stream.member) is not stream:
            return None
        del self._by_member[stream.member]
        return stream.member

    def try_find(self, member: MemberKey) -> MemberStream | None:
        return self._by_member.get(member)
