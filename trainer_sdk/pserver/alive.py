"""Liveness probe of a parameter server's pod: `python -m trainer_sdk.pserver.alive`.

The kernel accepts connections for a stopped process, so the probe completes the handshake, as a trainer would.  Any
answer counts, a refusal too; only silence, or a closed port, fails.  The probe does not see threads that deadlock over
the model, which the handshake does not touch; trainers time out on those.  It imports neither NumPy nor gRPC, so it
takes a tenth of a second and 20 MB.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

from master.api.host.unix_sockets import SCHEME, is_socket_address
from trainer_sdk.errors import EdlError
from trainer_sdk.transport.frames import FrameChannel, WireLimits
from trainer_sdk.transport.handshake import PROBE, connect_handshake
from trainer_sdk.transport.security import Security

LIMIT_S: Final = 10.0  # for each step; the kubelet has a limit for the whole probe


def main() -> int:
    """Exit code 0 if the server answers, else 1."""
    try:
        _probe(os.environ)
    except OSError as error:
        sys.stderr.write(f"the parameter server does not answer: {error}\n")
        return 1
    return 0


def _probe(variables: Mapping[str, str]) -> None:
    """Completes the handshake.  Raises OSError if the port is closed or the server is silent."""
    with _dial(variables["EDL_LISTEN"]) as raw:
        try:
            security = Security.from_environment(variables)
            context = security.client_context()
            sock = raw if context is None else context.wrap_socket(raw)
            connect_handshake(FrameChannel(sock, WireLimits(io_s=LIMIT_S, hello_s=LIMIT_S)), security, PROBE)
        except TimeoutError:
            raise
        except (EdlError, OSError) as error:
            sys.stderr.write(f"the server answers, with an error: {error}\n")


def _dial(listen: str) -> socket.socket:
    if is_socket_address(listen):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(LIMIT_S)
        sock.connect(listen.removeprefix(SCHEME))
        return sock
    host, _, port = listen.rpartition(":")
    host = "127.0.0.1" if host in {"", "0.0.0.0", "[::]"} else host.strip("[]")  # noqa: S104 - connected to, not bound
    return socket.create_connection((host, int(port)), timeout=LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
