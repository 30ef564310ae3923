"""Sockets that a forked child must not keep.

A connection ends for its peer once every process that has the socket has closed it.  A script's worker processes (those
of a DataLoader, say) are forked with all sockets of their parent, so a killed trainer would seem to be there, to the
members of its group and to its parameter servers, until its last worker has ended.  A child closes what is registered
here before it does anything else; nothing is said to the peer, whose connection is the parent's.

Children that run another program have none of these sockets: Python's descriptors are closed on exec (PEP 446).
"""

from __future__ import annotations

import os
import socket
import weakref
from contextlib import suppress
from typing import Final

_sockets: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()


def close_in_children(sock: socket.socket) -> None:
    """A child that this process forks from now on closes its copy of the socket; this process keeps it."""
    _sockets.add(sock)


def _close_copies() -> None:
    """In the child, which has one thread: what other threads of the parent held is left as it is."""
    for sock in tuple(_sockets):
        with suppress(OSError):
            sock.close()
    _sockets.clear()


os.register_at_fork(after_in_child=_close_copies)
