"""Listening socket of a process, and the address under which other processes of its job reach it.

Without EDL_LISTEN the process takes any port of the address that it uses towards its master: loopback on one machine,
the pod's own in a pod.  `edl run` names a private folder instead, in which each process takes a socket of its own name,
so that no other user of the machine can connect (ADR 0170).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from master.api.host.file_ownership import ForeignUserError, check_private
from master.api.host.unix_sockets import SCHEME, is_socket_address, socket_path
from trainer_sdk.errors import UsageError

_BACKLOG: Final = 128
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104


def listen(variables: Mapping[str, str], master: str, own_name: str) -> tuple[socket.socket, str]:
    """The listening socket and the advertised address.  Raises UsageError if EDL_LISTEN cannot be listened on.

    `own_name`: name of the socket in a folder, different for each process.
    """
    text = variables.get("EDL_LISTEN") or ""
    if is_socket_address(text):
        return _listen_in_folder(text, own_name)
    advertised = variables.get("EDL_ADVERTISE") or ""
    host, _, port = text.rpartition(":") if text else ("" if advertised else _own_host(master), "", "0")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UsageError(f"EDL_LISTEN: {text!r} is not host:port")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"EDL_LISTEN: {text or host} cannot be listened on: {error}") from error
    host, bound = listening.getsockname()[:2]
    shown = (advertised or (_own_host(master) if host in _EVERYWHERE else str(host))).strip("[]")
    return listening, f"[{shown}]:{bound}" if ":" in shown else f"{shown}:{bound}"


def _listen_in_folder(text: str, own_name: str) -> tuple[socket.socket, str]:
    try:
        path = socket_path(text)
        path = socket_path(f"{text}/{own_name}") if path.is_dir() else path
        check_private(path.parent)
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
    except (ValueError, ForeignUserError, OSError) as error:
        raise UsageError(f"EDL_LISTEN: {error}") from error
    return listening, f"{SCHEME}{path}"


def _own_host(master: str) -> str:
    """This machine's address on the way to the master; its host name if there is no way, loopback if no master."""
    if not master or is_socket_address(master):
        return "127.0.0.1"
    host, _, port = master.rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
