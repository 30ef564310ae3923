"""Which user of this machine is at the other end of a loopback connection, as the kernel tells it.

Linux lists every socket with its owner (`/proc/net/tcp`, proc(5)); elsewhere, or where the list cannot be read, the
user is not known.  A socket over IPv6 that reaches an IPv4 address stands in `/proc/net/tcp6`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED: Final = "0000000000000000FFFF0000"  # ::ffff:0:0/96, each group of four bytes in this machine's order


def find_peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the user ID that owns the client's end of this IPv4 connection; None where that is not known."""
    ours, theirs = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return find_uid_between(ours, theirs) if ours and theirs else None


def find_uid_between(ours: tuple[str, int], theirs: tuple[str, int]) -> int | None:
    """Return the user ID that owns the end `theirs` of a connection to `ours`; None where that is not known."""
    local, remote = _listed(theirs), _listed(ours)  # what is ours is remote to the client
    for table in TABLES:
        try:
            with table.open(encoding="ascii") as lines:
                uid = parse_owner(lines, local, remote)
        except OSError:
            continue
        if uid is not None:
            return uid
    return None


def parse_owner(lines: Iterable[str], local: str, remote: str) -> int | None:
    """Return the owner of the socket with these ends, written as in the table; None if it is not listed."""
    for line in lines:
        fields = line.split(maxsplit=8)
        if len(fields) > 7 and fields[1].removeprefix(_MAPPED) == local and fields[2].removeprefix(_MAPPED) == remote:
            return int(fields[7])
    return None


def _listed(address: tuple[str, int]) -> str:
    packed = socket.inet_aton(address[0])
    return f"{int.from_bytes(packed, sys.byteorder):08X}:{address[1]:04X}"
