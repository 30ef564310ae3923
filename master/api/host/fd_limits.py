"""Open files of a process: as many as the system lets it have, and how many of them whoever knocks may take."""

from __future__ import annotations

import resource
import sys
from typing import Final

_OWN: Final = 512
"""Files, the store's connections, metrics (256 at most) and the interpreter: never a stranger's."""

_FEWEST_CONNECTIONS: Final = 64


def raise_limit() -> None:
    """This process may have as many open files as its hard limit says; a shell's 1,024 are few for a large job."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if sys.platform == "linux":  # elsewhere the hard limit may be more than the system takes
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections(wanted: int) -> int:
    """So many connections may be open at once that files of our own can still be opened; `wanted` at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = wanted if soft == resource.RLIM_INFINITY else soft - _OWN
    return max(_FEWEST_CONNECTIONS, min(wanted, room))
