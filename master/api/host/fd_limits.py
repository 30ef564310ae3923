"""Limits of open files: as many as the system allows, and how many of them connections may use."""

from __future__ import annotations

import resource
import sys
from typing import Final

_OWN: Final = 512
"""Descriptors reserved for this process: files, store connections, metrics (256 at most), interpreter."""

_FEWEST_CONNECTIONS: Final = 64


def raise_limit() -> None:
    """Raises the soft limit to the hard limit; a shell's 1,024 are few for a large job."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if sys.platform == "linux":  # elsewhere the hard limit may be more than the system takes
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections(wanted: int) -> int:
    """The connections that may be open at once so that this process can open its own files; at most `wanted`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    available = wanted if soft == resource.RLIM_INFINITY else soft - _OWN
    return max(_FEWEST_CONNECTIONS, min(wanted, available))
