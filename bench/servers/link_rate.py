"""Rate of one connection between two nodes, which everything that moves bytes is compared with."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from typing import Final

from bench.servers.network_nodes import Node

PIECE: Final = 4 << 20
ROUNDS: Final = 5


def link_bytes_per_s(size: int, source: Node, target: Node) -> float:
    """Median over rounds of `size` bytes one way over a bare TCP connection: sendall here, recv_into there, one ack."""
    here = [sys.executable, "-m", "bench.servers.link_rate"]
    receiving = [*target.prefix, *here, target.address]
    with subprocess.Popen(receiving, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            port = receiver.stdout.readline().strip()
            sending = [*source.prefix, *here, target.address, port, str(size)]
            return float(subprocess.run(sending, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout)
        finally:
            receiver.kill()


def _send(host: str, port: int, size: int) -> float:
    piece = memoryview(bytes(PIECE))
    with socket.create_connection((host, port)) as sock:
        sock.sendall(size.to_bytes(8, "little"))
        return statistics.median(_rate(sock, piece, size) for _ in range(ROUNDS))


def _rate(sock: socket.socket, piece: memoryview, size: int) -> float:
    begun = time.perf_counter()
    for at in range(0, size, PIECE):
        sock.sendall(piece[: min(PIECE, size - at)])
    sock.recv(1)
    return size / (time.perf_counter() - begun)


def _receive(host: str) -> None:
    """Says its port and serves one connection."""
    with socket.create_server((host, 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        sock, _ = listening.accept()
    buffer = memoryview(bytearray(PIECE))
    with sock:
        size = int.from_bytes(sock.recv(8, socket.MSG_WAITALL), "little")
        while True:
            left = size
            while left:
                got = sock.recv_into(buffer[: min(PIECE, left)])
                if not got:
                    return
                left -= got
            sock.sendall(b"1")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [address]:
            _receive(address)
        case [address, at, count]:
            print(_send(address, int(at), int(count)))
        case _:
            sys.exit("ADDRESS to receive, ADDRESS PORT BYTES to send")
