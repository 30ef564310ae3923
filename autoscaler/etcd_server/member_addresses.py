"""Addresses of etcd members: Unix sockets in a private folder (ADR 0170), or ports of loopback for tests of TLS."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.errors import EtcdPortInUseError
from master.api.host.unix_sockets import SCHEME, has_listener, is_socket_address

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPorts:
    client: int
    peer: int
    health: int  # plain HTTP, also where clients need TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAddresses:
    """Addresses of one member: three addresses of one kind, `unix:PATH` or host:port, and the URLs as etcd has them.

    etcd takes the host of a `unix://` URL for a path from its working folder, which is therefore that of the sockets.
    """

    client: str
    peer: str
    health: str  # plain HTTP, also where clients need TLS
    scheme: str = "unix"

    @classmethod
    def on_ports(cls, ports: MemberPorts, scheme: str) -> MemberAddresses:
        return cls(
            client=f"{HOST}:{ports.client}", peer=f"{HOST}:{ports.peer}", health=f"{HOST}:{ports.health}", scheme=scheme
        )

    @classmethod
    def in_folder(cls, sockets: Path, name: str) -> MemberAddresses:
        client, peer, health = (f"{SCHEME}{sockets}/{name}{letter}:1" for letter in "cph")
        return cls(client=client, peer=peer, health=health)

    @property
    def all(self) -> tuple[str, ...]:
        return (self.client, self.peer, self.health)

    def url(self, address: str) -> str:
        """URL of one of the three addresses; only clients speak TLS."""
        if self.scheme == "unix":
            return f"unix://{Path(address).name}"
        return f"{self.scheme if address == self.client else 'http'}://{address}"


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of a member's addresses.  Raises OSError."""
    if is_socket_address(address):
        return await asyncio.open_unix_connection(address.removeprefix(SCHEME))
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def check_free(address: str) -> None:
    """Check that nobody listens at the address.  Raises EtcdPortInUseError."""
    if is_socket_address(address):
        if has_listener(Path(address.removeprefix(SCHEME))):  # else etcd removes what is left of it
            raise EtcdPortInUseError(address)
        return
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as etcd: a port in TIME_WAIT is free
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            raise EtcdPortInUseError(address) from error
