"""Identity of a leader: name, address, host and boot, unique across machines and containers.

Name and address do not suffice: masters that are started by hand on two machines have one default name, and 0.0.0.0
is an address of both.  A master that finds its own place in the key gives back the lease of its predecessor (ADR
0202), so the machine's boot and its host name, which is a container's own, belong to the place.  A lease from another
boot runs out by itself.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_CHARACTERS: Final = 8


def holder_at(name: str, address: object, *, host: str, boot: str) -> str:
    """The identity of a master of this name that listens at the address."""
    return f"{name}@{address} on {host}, boot {boot[:_BOOT_CHARACTERS] or 'unknown'}"


def this_holder(name: str, address: object) -> str:
    """The identity of this process, the same for the next one that is started here."""
    return holder_at(name, address, host=socket.gethostname(), boot=_boot())


def _boot() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # no Linux: the host's name has to do
        return ""
