"""Frames on sockets between trainers and parameter servers: handshake, connections, cancellation."""
