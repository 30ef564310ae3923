"""What one connection between two processes of this machine carries: the measure of everything that moves bytes."""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import time
from multiprocessing.connection import Connection

PIECE = 4 << 20
ROUNDS = 5


def link_bytes_per_s(size: int) -> float:
    """Median over rounds of `size` bytes one way over a bare TCP connection: sendall here, recv_into there, one ack."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_swallow, args=(there, size), daemon=True)
    child.start()
    piece = memoryview(bytes(PIECE))
    try:
        with socket.create_connection(("127.0.0.1", here.recv())) as sock:
            return statistics.median(_rate(sock, piece, size) for _ in range(ROUNDS))
    finally:
        child.join(10)
        child.kill()


def _rate(sock: socket.socket, piece: memoryview, size: int) -> float:
    begun = time.perf_counter()
    for at in range(0, size, PIECE):
        sock.sendall(piece[: min(PIECE, size - at)])
    sock.recv(1)
    return size / (time.perf_counter() - begun)


def _swallow(there: Connection, size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there.send(listening.getsockname()[1])
        sock, _ = listening.accept()
    buffer = memoryview(bytearray(PIECE))
    with sock:
        while True:
            left = size
            while left:
                got = sock.recv_into(buffer[: min(PIECE, left)])
                if not got:
                    return
                left -= got
            sock.sendall(b"1")
