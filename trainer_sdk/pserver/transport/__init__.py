"""Frames on sockets between trainers and parameter servers: who may speak, connections, and the end of waiting."""
