"""`python -m trainer_sdk.pserver.alive`: does the parameter server of this pod answer?  For its liveness probe.

A process that is stopped keeps its port: the kernel accepts connections for it.  So this goes as far as a trainer
goes, to the end of the handshake.  Whatever the server says is an answer, a refusal too: only silence, or nobody
listening, is none.  Not seen: threads that wait for one another over the model, which the handshake does not touch;
trainers give up on those.  Neither NumPy nor gRPC is imported: a tenth of a second, 20 MB.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

from master.api.host.unix_sockets import SCHEME, is_socket_address
from trainer_sdk.errors import EdlError
from trainer_sdk.pserver.transport.frames import FrameChannel, WireLimits
from trainer_sdk.pserver.transport.handshake import PROBE, greet_server
from trainer_sdk.pserver.transport.security import Security

LIMIT_S: Final = 10.0  # for each step; whoever probes has a limit for all of it


def main() -> int:
    """0: it answers.  1: it does not, or is not there."""
    try:
        _ask(os.environ)
    except OSError as error:
        sys.stderr.write(f"the parameter server does not answer: {error}\n")
        return 1
    return 0


def _ask(variables: Mapping[str, str]) -> None:
    """Raises OSError when nobody listens or nothing comes."""
    with _dial(variables["EDL_LISTEN"]) as raw:
        try:
            security = Security.from_environment(variables)
            context = security.client_context()
            sock = raw if context is None else context.wrap_socket(raw)
            greet_server(FrameChannel(sock, WireLimits(io_s=LIMIT_S, hello_s=LIMIT_S)), security, PROBE)
        except TimeoutError:
            raise
        except (EdlError, OSError) as error:
            sys.stderr.write(f"it answers: {error}\n")


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
