"""Ports of the web pods of one run, and a check whether a process listens at an address.

Ports are taken from 16384 to 32767, below what Linux gives to outgoing connections unless it is configured otherwise.
No two web pods of a run have the same port at a time, and a port on which somebody listens is passed over.  Nothing
reserves a port until the pod's process binds it: another process may take it meanwhile.  The pod's process then fails,
and is started again with the same port.  Two runs rarely meet there, since each begins at a port that depends on its
process id.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from autoscaler.errors import TemporaryError
from master.api.host.unix_sockets import is_socket_address, socket_path

HOST: Final = "127.0.0.1"
_FIRST: Final = 16_384
_LAST: Final = 32_767  # by default Linux gives 32768 and above to outgoing connections


class PortAllocator:
    """Ports of one run."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._next = self._numbers(_FIRST + os.getpid() * 61 % (_LAST - _FIRST))

    def allocate(self) -> int:
        """Return a port that could be bound now, and is not allocated.  Raises TemporaryError if there is none."""
        for _ in range(_LAST - _FIRST):
            port = next(self._next)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        raise TemporaryError(f"no free port between {_FIRST} and {_LAST}", retry_after_s=1.0)

    def release(self, port: int) -> None:
        """Let the port be allocated again."""
        self._taken.discard(port)

    @staticmethod
    def _numbers(start: int) -> Iterator[int]:
        while True:
            yield from range(start, _LAST + 1)
            start = _FIRST


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closing connections do not count
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


async def is_listening(address: str) -> bool:
    """True if a process accepts connections at `host:port` or `unix:PATH`."""
    try:
        if is_socket_address(address):
            _, writer = await asyncio.open_unix_connection(socket_path(address))
        else:
            host, _, port = address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
