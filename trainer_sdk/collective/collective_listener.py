"""Listener of a process for the members of its groups, and the making of a group's connections.

Each member connects to all lower ranks and is connected to by all higher ones; connections are authenticated and
encrypted as those of parameter servers are (ADR 0171).  Nobody waits for a peer's part before it has done its own:
requests go out first, then this member takes what came, answers, and waits for the answers.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from master.api.identities import Incarnation, MemberName, ServerPlace
from trainer_sdk.collective.flows import Flow, Incoming, Link, Links, Outgoing
from trainer_sdk.collective.host_collective import HostCollective
from trainer_sdk.collective.rendezvous import LONGEST_KEY, JoinRequest, Peer, Rendezvous, decode_join, digest_members
from trainer_sdk.errors import CollectiveAborted, EdlError, UsageError, WireError
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.connection_listener import ConnectionListener
from trainer_sdk.transport.duplex import DuplexChannel
from trainer_sdk.transport.frames import Frame, FrameChannel, FrameKind, WireLimits, pack_header
from trainer_sdk.transport.handshake import PeerRole
from trainer_sdk.transport.listen_address import listen as open_socket
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings, ServerConnection


class CollectiveListener:
    """One per process, from its start to its end."""

    def __init__(
        self, listen: str, security: Security, incarnation: str, *, advertise: str = "", master: str = ""
    ) -> None:
        """`listen`, `advertise`: EDL_LISTEN and EDL_ADVERTISE, as for a parameter server.

        Without `listen` it is any port of the address that is used towards `master`; of loopback without a master.
        Raises UsageError if it cannot be listened on.
        """
        listening, self.address = open_socket({"EDL_LISTEN": listen, "EDL_ADVERTISE": advertise}, master, incarnation)
        self._security, self._incarnation = security, incarnation
        self._context = security.client_context()
        self._groups: dict[str, HostCollective] = {}  # being connected, or connected
        self._lock = threading.Lock()
        self._is_closed = False
        self._rendezvous = Rendezvous()
        self._connections = _MemberConnections(self._rendezvous, security, listening, incarnation)

    def connect(
        self, *, key: str, rank: int, members: Sequence[Peer], budget_s: float, idle_s: float = 30.0
    ) -> HostCollective:
        """The group of this key, once all members are connected.  Raises CollectiveAborted, or UsageError.

        Several groups may be connected, or connecting, at once (rule 79).  `idle_s`: longest time in which an operation
        of the group moves no byte before it fails; `abort` is the usual way out.
        """
        _check_members(key, rank, members, self._incarnation)
        cancellation, links = Cancellation(), Links(idle_s)
        group = HostCollective(rank=rank, size=len(members), links=links, cancellation=cancellation)
        self._register(key, group)
        until_s = time.monotonic() + budget_s
        try:
            self._rendezvous.join(key, members, rank)
            try:
                self._connect_links(
                    key=key, group=group, members=members, links=links, cancellation=cancellation, until_s=until_s
                )
            finally:
                self._rendezvous.leave(key)
            group.check_usable()
        except BaseException as error:
            group.abort(str(error) or repr(error))
            group.close()
            self._forget(key)
            if isinstance(error, EdlError | OSError):
                raise CollectiveAborted(group.reason) from error
            raise
        return group

    def abort(self, key: str, reason: str) -> None:
        """Aborts the group of this key, connected or still connecting; without one nothing happens."""
        with self._lock:
            group = self._groups.get(key)
        if group is not None:
            group.abort(reason)
            self._rendezvous.wake()

    def close(self) -> None:
        """Takes no more connections; groups that are connecting are aborted, connected ones live on."""
        with self._lock:
            self._is_closed = True
            connecting = [key for key, group in self._groups.items() if self._rendezvous.is_joining(key)]
        for key in connecting:
            self.abort(key, "this process closes")
        self._rendezvous.close()
        self._connections.close()

    def _register(self, key: str, group: HostCollective) -> None:
        with self._lock:
            if self._is_closed:
                raise CollectiveAborted("this process closes")
            self._groups = {name: one for name, one in self._groups.items() if not one.reason}
            if key in self._groups:
                raise UsageError(f"group {key} is connected already, or connecting: each has a key of its own")
            self._groups[key] = group

    def _forget(self, key: str) -> None:
        with self._lock:
            self._groups.pop(key, None)

    def _connect_links(
        self,
        *,
        key: str,
        group: HostCollective,
        members: Sequence[Peer],
        links: Links,
        cancellation: Cancellation,
        until_s: float,
    ) -> None:
        request = JoinRequest(key=key, rank=group.rank, incarnation=self._incarnation, members=digest_members(members))
        frame = pack_header(FrameKind.GROUP_JOIN, request.encode(), 0)
        for lower in range(group.rank):
            link = Link(lower, DuplexChannel(self._dial(lower, members[lower], cancellation, until_s)))
            links.add(link)
            links.run([Outgoing(link, [frame])], 0, until_s=until_s)  # at once: the listener waits a few seconds for it
        arrived = self._rendezvous.wait_for_all(key, until_s, lambda: group.reason)
        for higher, channel in sorted(arrived.items()):
            duplex = DuplexChannel(channel)
            cancellation.add(duplex.sock)
            links.add(Link(higher, duplex))
        joined = pack_header(FrameKind.GROUP_JOINED, b"", 0)
        flows: list[Flow] = [
            Outgoing(link, [joined]) if rank > group.rank else Incoming(link, FrameKind.GROUP_JOINED, _nothing)
            for rank, link in links.by_rank.items()
        ]
        links.run(flows, 0, until_s=until_s)

    def _dial(self, rank: int, peer: Peer, cancellation: Cancellation, until_s: float) -> FrameChannel:
        """An authenticated connection to this very process.  Raises EdlError or OSError."""
        left_s = max(0.05, until_s - time.monotonic())
        place = ServerPlace(
            name=MemberName(f"rank {rank}"), incarnation=Incarnation(peer.incarnation), address=peer.address, ordinal=0
        )
        settings = ConnectionSettings(
            name=self._incarnation,
            role=PeerRole.MEMBER,
            limits=WireLimits(io_s=left_s, hello_s=left_s),
            connect_s=left_s,
        )
        return ServerConnection(place, self._security, settings, self._context, cancellation).channel(until_s)


class _MemberConnections(ConnectionListener):
    """Connections that other members open."""

    def __init__(self, rendezvous: Rendezvous, security: Security, listening: socket.socket, incarnation: str) -> None:
        self._rendezvous = rendezvous
        super().__init__(security, listening, WireLimits(), incarnation)

    def serve_member(self, channel: FrameChannel, name: str, role: PeerRole) -> bool:
        """Hands the connection over to its group."""
        if role is not PeerRole.MEMBER:
            raise WireError(f"{name} is a {role.name.lower()}, not a member of a group")
        frame = channel.receive_hello()
        if frame.kind is not FrameKind.GROUP_JOIN:
            raise WireError(f"{frame.kind.name} instead of GROUP_JOIN")
        try:
            self._rendezvous.offer(decode_join(frame.head), channel)
        except WireError as error:
            channel.send(FrameKind.REFUSED, str(error).encode())
            raise
        return True


def _nothing(frame: Frame) -> memoryview:
    if frame.body_bytes:
        raise WireError(f"{frame.kind.name} with a body")
    return memoryview(b"")


def _check_members(key: str, rank: int, members: Sequence[Peer], incarnation: str) -> None:
    """Raises UsageError."""
    if not key or len(key) > LONGEST_KEY:
        raise UsageError(f"connect: a key has 1 to {LONGEST_KEY} characters, this one {len(key)}")
    if not 0 <= rank < len(members) or members[rank].incarnation != incarnation:
        raise UsageError(f"connect: rank {rank} of {len(members)} members is not this process, {incarnation}")
