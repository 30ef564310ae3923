"""Connections that other members opened, until this process joins the group that they are for.

A member may connect before its peer has heard of the group (rule 79): its connection waits, bounded in number and
time.  Each connection names the group's key, the ranks and incarnations of its member, and a digest of all members:
who has another list is refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainer_sdk.errors import CollectiveAborted, WireError
from trainer_sdk.transport.frames import FrameChannel

LONGEST_KEY: Final = 256
_MAX_WAITING: Final = 512
_WAIT_S: Final = 60.0
_LOOK_S: Final = 0.5  # between two looks at whether the peer of a waiting connection is still there


@dataclass(frozen=True, slots=True)
class Peer:
    """A member of a group: one process, and where it listens."""

    incarnation: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Purpose of a connection."""

    key: str
    rank: int
    incarnation: str
    members: str
    """Digest of all members, in rank order."""

    def encode(self) -> bytes:
        fields = {"key": self.key, "rank": self.rank, "incarnation": self.incarnation, "members": self.members}
        return json.dumps(fields).encode()


def decode_join(head: bytes) -> JoinRequest:
    """Raises WireError."""
    try:
        fields: Any = json.loads(head)
        key, rank, incarnation, members = (fields[name] for name in ("key", "rank", "incarnation", "members"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError("a request to join a group without its fields") from error
    texts = (key, incarnation, members)
    if not all(isinstance(text, str) and len(text) <= LONGEST_KEY for text in texts) or type(rank) is not int:
        raise WireError("a request to join a group with fields of other types")
    return JoinRequest(key=key, rank=rank, incarnation=incarnation, members=members)


def digest_members(members: Sequence[Peer]) -> str:
    """One text for one list of members."""
    return hashlib.sha256(json.dumps([[one.incarnation, one.address] for one in members]).encode()).hexdigest()


class _Joining:
    """A group that this process is joining."""

    def __init__(self, members: Sequence[Peer], rank: int) -> None:
        self.members, self.rank = members, rank
        self.digest = digest_members(members)
        self.arrived: dict[int, FrameChannel] = {}

    def check(self, request: JoinRequest) -> None:
        """Raises WireError with what the other member has to know."""
        if request.members != self.digest:
            raise WireError(f"group {request.key}: another list of members")
        if not self.rank < request.rank < len(self.members):
            raise WireError(f"group {request.key}: rank {request.rank} does not connect to rank {self.rank}")
        if request.incarnation != self.members[request.rank].incarnation:
            raise WireError(f"group {request.key}: rank {request.rank} is another process")
        if request.rank in self.arrived:
            raise WireError(f"group {request.key}: rank {request.rank} is connected already")


class Rendezvous:
    """Meeting of connections and joins.  Methods may be called from any thread."""

    def __init__(self, *, wait_s: float = _WAIT_S) -> None:
        """`wait_s`: longest time that a connection waits for this process to join its group."""
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._joining: dict[str, _Joining] = {}
        self._waiting = 0
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Connections whose group this process has not joined."""
        return self._waiting

    def offer(self, request: JoinRequest, channel: FrameChannel) -> None:
        """Hands a connection over to the group, once this process joins it.  Raises WireError: it is to be closed.

        A peer that leaves the group's generation closes its connection, which does not wait any longer then.
        """
        deadline_s = time.monotonic() + self._wait_s
        with self._changed:
            if self._waiting >= _MAX_WAITING:
                raise WireError(f"{_MAX_WAITING} connections wait for their groups already")
            self._waiting += 1
            try:
                while (group := self._joining.get(request.key)) is None:
                    left_s = deadline_s - time.monotonic()
                    if self._is_closed or left_s <= 0:
                        raise WireError(f"group {request.key}: this process has not joined it")
                    if channel.is_ended_by_peer:
                        raise WireError(f"group {request.key}: rank {request.rank} has left it")
                    self._changed.wait(min(left_s, _LOOK_S))
            finally:
                self._waiting -= 1
            group.check(request)
            group.arrived[request.rank] = channel
            self._changed.notify_all()

    def join(self, key: str, members: Sequence[Peer], rank: int) -> None:
        """Connections for this key are taken from now on."""
        with self._changed:
            self._joining[key] = _Joining(members, rank)
            self._changed.notify_all()

    def wait_for_all(self, key: str, until_s: float, why_not: Callable[[], str]) -> dict[int, FrameChannel]:
        """The connections of all higher ranks.  Raises CollectiveAborted at the deadline, or if `why_not` has a reason.

        `wake` has `why_not` asked anew.
        """
        with self._changed:
            group = self._joining[key]
            missing = set(range(group.rank + 1, len(group.members)))
            while missing := missing - set(group.arrived):
                left_s = until_s - time.monotonic()
                if reason := why_not():
                    raise CollectiveAborted(reason)
                if left_s <= 0:
                    names = ", ".join(map(str, sorted(missing)))
                    raise CollectiveAborted(f"group {key}: not connected in time: ranks {names}")
                self._changed.wait(left_s)
            arrived, group.arrived = group.arrived, {}
            return arrived

    def is_joining(self, key: str) -> bool:
        """True while connections for this key are taken."""
        return key in self._joining

    def leave(self, key: str) -> None:
        """Connections for this key are taken no more; those that nobody has taken are closed."""
        with self._changed:
            group = self._joining.pop(key, None)
        for channel in group.arrived.values() if group else ():
            channel.close()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """No connection waits any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
