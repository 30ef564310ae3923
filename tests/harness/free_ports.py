"""Ports of loopback that nobody listens on, for members of etcd in tests of TLS."""

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

from autoscaler.etcd_server.errors import EtcdPortInUseError
from autoscaler.etcd_server.member_addresses import HOST, MemberPorts

PORT_RANGE: Final = range(20_000, 32_000)


def free_ports(members: int) -> tuple[MemberPorts, ...]:
    """Ports that nobody listens on now.  Raises EtcdPortInUseError when there are not enough.

    Taken from below the range that the kernel gives to outgoing connections: an outgoing connection must not take a
    member's port while the member restarts.
    """
    wanted = 3 * members
    with ExitStack() as held:
        numbers: list[int] = []
        for port in random.SystemRandom().sample(PORT_RANGE, k=len(PORT_RANGE)):
            if len(numbers) == wanted:
                break
            one = held.enter_context(socket.socket())
            with suppress(OSError):
                one.bind((HOST, port))
                numbers.append(port)
        else:
            raise EtcdPortInUseError(f"{HOST}, every port from {PORT_RANGE.start} to {PORT_RANGE.stop - 1},")
    return tuple(MemberPorts(client=c, peer=p, health=h) for c, p, h in zip(*[iter(numbers)] * 3, strict=True))
