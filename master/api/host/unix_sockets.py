"""Unix sockets between the processes of one machine: addresses, private folders, the peer's user (ADR 0170).

Other users of a machine, and web pages in a browser, can connect to every loopback port and take over a free one.  A
socket in a folder of mode 0700 is reachable for its owner (and root) alone, and no other process can take its place.
In addition, both ends check the peer's user by SO_PEERCRED.  An address is `unix:PATH`, as gRPC writes it, beside
`host:port`.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from master.api.host.file_ownership import ForeignUserError, check_path, check_private

log: Final = logging.getLogger(__name__)

SCHEME: Final = "unix:"
LONGEST_PATH_BYTES: Final = 103
"""AF_UNIX takes 107 bytes on Linux and 103 on other systems."""

LONGEST_NAME_BYTES: Final = 16
"""Of a socket in such a folder; names are short, so that folders may be deep."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9._/~+@=:-]*")  # not those that gRPC's addresses or lists of them give a meaning
_SHORT_PLACES: Final = ("/tmp", "/var/tmp")  # noqa: S108 - a folder of mode 0700 is made, and the place looked at
_PROBE_S: Final = 1.0
_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


def is_socket_address(address: str) -> bool:
    """True for `unix:PATH`, False for host:port."""
    return address.startswith(SCHEME)


def socket_path(address: str) -> Path:
    """The path of `unix:PATH` or `unix:///PATH`.  Raises ValueError: relative, with a NUL, or too long to bind."""
    text = address.removeprefix(SCHEME)
    path = Path(text.removeprefix("//"))
    if not path.is_absolute() or "\0" in text:
        raise ValueError(f"{address!r} is not unix:PATH with an absolute path")
    if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        raise ValueError(f"{address!r} is longer than the {LONGEST_PATH_BYTES} bytes of a socket's path")
    return path


def make_socket_folder(wanted: Path) -> Path:
    """A new private folder for sockets: `wanted`, or a temporary one if that path is too long or not allowed.

    Raises OSError.
    """
    wanted = wanted.absolute()
    is_short = len(os.fsencode(wanted)) + 1 + LONGEST_NAME_BYTES <= LONGEST_PATH_BYTES
    if is_short and _PLAIN.fullmatch(str(wanted)):
        wanted.mkdir(mode=0o700)
        return wanted
    return Path(tempfile.mkdtemp(prefix="edl-", dir=_short_parent() or temporary_parent(_SHORT_PLACES)))


def temporary_parent(places: Sequence[str]) -> str:
    """The first place whose files no other user can replace; see `check_path`.

    Where there is none, as in a container whose /tmp is a volume open to everybody: the first, with a warning.
    """
    for place in places:
        with suppress(ForeignUserError, OSError):
            check_path(Path(place))
            if os.access(place, os.W_OK | os.X_OK):
                return place
    log.warning("%s: every user may write there and move what is made, if others use this machine", places[0])
    return places[0]


def has_listener(path: Path) -> bool:
    """True if a process has this socket, also one that is stopped and accepts no more."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (BlockingIOError, TimeoutError):
            return True  # its queue is full
        except OSError:
            return False
    return True


def check_peer(sock: socket.socket) -> None:
    """Check that the peer runs as this user or root.  Raises ForeignUserError; systems without the call pass."""
    user = peer_user(sock)
    if user is not None and user not in {os.geteuid(), 0}:
        raise ForeignUserError(f"the peer runs as user {user}, this process as {os.geteuid()}")


def peer_user(sock: socket.socket) -> int | None:
    """The user id of a Unix socket's other end; None: another kind of socket, or an unsupported system."""
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(credentials)[1])


def _short_parent() -> str | None:
    """$XDG_RUNTIME_DIR where it is this user's alone."""
    refusals = os.environ.get("XDG_RUNTIME_DIR", "")
    if not _PLAIN.fullmatch(refusals) or not 0 < len(refusals) <= LONGEST_PATH_BYTES // 2:
        return None
    try:
        check_private(Path(refusals))
    except (ForeignUserError, OSError):
        return None
    return refusals
