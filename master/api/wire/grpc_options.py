"""gRPC channel options for both ends of a member's stream, which belong together.

A server closes connections (GOAWAY) of clients that ping more often than it allows, so the numbers of both sides are
written here once.  A silent peer is noticed within 15 s, which only frees the connection: liveness of members is
decided by progress (leases), never by pings.
"""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024  # a RESTORE names every bucket of every file; most messages are below 1 kB

MOST_CONNECTIONS: Final = 24_576  # of one master: two roles of 10,000 at most, and some that come again

_SAME: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # gRPC waits for the longer of the two; this one's default is a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CLIENT_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_SAME,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # despite its name how long one attempt may take, on a busy machine too
    ("grpc.max_reconnect_backoff_ms", 500),  # a master that stood by serves within moments (ADR 0202)
)

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_SAME,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # below keepalive_time_ms
    ("grpc.max_concurrent_streams", 64),  # of one connection; a member has one, the cluster side a few requests
    ("grpc.server_handshake_timeout_ms", 5_000),  # for silent connections; members use the same limit
    ("grpc.so_reuseport", 0),  # a port in use is an error, never shared
)
