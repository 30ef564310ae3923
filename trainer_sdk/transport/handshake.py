"""Handshake of a connection: versions, and proof on both sides that they belong to one job.

    server -> CHALLENGE(version, incarnation, nonce)
    client -> HELLO(version, role, name, nonce, proof of the server's nonce in that role)
    server -> WELCOME(proof of the client's nonce), or REFUSED(text)

A server that hands a bucket over, or sends a push to a backup, is a client too, in its own role; copies and backup
pushes are taken from that role alone.  Both sides speak one version of the data path: servers and trainers of a job
run one image.
"""

from __future__ import annotations

import json
import secrets
from enum import StrEnum
from typing import Any, Final

from master.api.host.log_lines import escape_controls
from trainer_sdk.errors import AuthenticationError, VersionSkewError, WireError
from trainer_sdk.transport.frames import Frame, FrameChannel, FrameKind
from trainer_sdk.transport.security import Security

DATA_PATH_VERSION: Final = 1
PROBE: Final = "liveness probe"  # client name of the liveness probe (`alive`)
_NONCE_BYTES: Final = 32


class PeerRole(StrEnum):
    """Role of a client.  All know one secret, so roles prevent mistakes, not attacks by members of the job."""

    TRAINER = "client"  # may push and pull; probes have this role too
    SERVER = "peer"  # may also send copies of buckets and backup pushes
    MEMBER = "member"  # of a group: the connection is one between two members of it (`trainer_sdk.collective`)


def welcome_client(channel: FrameChannel, security: Security, incarnation: str) -> tuple[str, PeerRole]:
    """Server's side; returns the client's name and role.  Raises WireError or AuthenticationError after REFUSED."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    channel.send(
        FrameKind.CHALLENGE, _encode({"version": DATA_PATH_VERSION, "incarnation": incarnation, "nonce": nonce.hex()})
    )
    hello = _decode(channel.receive_hello(), FrameKind.HELLO)
    try:
        _check_version(hello)
        role = next((role for role in PeerRole if role == hello.get("role")), PeerRole.TRAINER)
        _check_proof(security, role, nonce, hello)
    except (WireError, AuthenticationError) as error:
        channel.send(FrameKind.REFUSED, str(error).encode())
        raise
    channel.send(FrameKind.WELCOME, _encode({"proof": security.proof("server", _nonce(hello))}))
    return escape_controls(str(hello.get("name"))[:256]), role


def connect_handshake(channel: FrameChannel, security: Security, name: str, role: PeerRole = PeerRole.TRAINER) -> str:
    """Client's side; returns the server's incarnation.  Raises WireError or AuthenticationError."""
    challenge = _decode(channel.receive_hello(), FrameKind.CHALLENGE)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    proof = security.proof(role, _nonce(challenge))
    fields = {"version": DATA_PATH_VERSION, "role": role, "name": name, "nonce": nonce.hex(), "proof": proof}
    channel.send(FrameKind.HELLO, _encode(fields))
    _check_version(challenge)
    welcome = _decode(channel.receive_hello(), FrameKind.WELCOME)
    _check_proof(security, "server", nonce, welcome)
    return str(challenge.get("incarnation"))


def _check_proof(security: Security, role: str, nonce: bytes, fields: dict[str, Any]) -> None:
    if not security.accepts(role, nonce, str(fields.get("proof"))):
        raise AuthenticationError(f"the {role} does not know this job's secret (EDL_TOKEN_FILE)")


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def _decode(frame: Frame, expected: FrameKind) -> dict[str, Any]:
    if frame.kind is FrameKind.REFUSED:
        raise AuthenticationError(f"refused by the server: {frame.text}")
    if frame.kind is not expected:
        raise WireError(f"{frame.kind.name} instead of {expected.name}")
    try:
        fields = json.loads(frame.head)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{expected.name} is not JSON") from error
    if not isinstance(fields, dict):
        raise WireError(f"{expected.name} is not a JSON object")
    return fields


def _nonce(fields: dict[str, Any]) -> bytes:
    try:
        return bytes.fromhex(str(fields.get("nonce")))
    except ValueError as error:
        raise WireError("the nonce is not hexadecimal") from error


def _check_version(fields: dict[str, Any]) -> None:
    if fields.get("version") != DATA_PATH_VERSION:
        raise VersionSkewError(
            f"the peer has version {str(fields.get('version'))[:20]!r} of the data path, "
            f"this side {DATA_PATH_VERSION}: run one EDL release in all pods of a job"
        )
