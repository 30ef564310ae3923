"""Frames on sockets between the processes of a job: security, handshake, listeners, connections, cancellation.

Parameter servers, their clients and the members of groups use one wire: a fixed header, a small head, a raw body.
Begin with `frames`; `handshake` and `security` say who may speak, `connection_listener` and `server_connection` are the
two ends of a connection.  What heads and bodies mean is not here: `trainer_sdk.pserver.wire`.
"""
