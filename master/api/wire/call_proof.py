"""Proof on both sides of a call that they know the job's secret, which itself never travels (ADR 0171).

Another process may have taken the master's port, so nothing that is sent there may be useful to it.  This is digest
authentication (RFC 7616: a challenge, a response to it, `rspauth` and `nextnonce` in the answer) with HMAC-SHA-256, in
gRPC metadata:

    member -> edl-challenge (the master's, used once), edl-nonce (fresh), edl-proof
    master -> initial metadata: edl-challenge (for the next call), edl-proof (of the member's nonce)
           or UNAUTHENTICATED with edl-challenge in the trailing metadata: try again with that

A proof holds for one job, one method and one pair of nonces.  It does not hide the messages from a process
between the two; TLS does.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from typing import Final

from master.api.errors import ContractError

CHALLENGE_KEY: Final = "edl-challenge"
NONCE_KEY: Final = "edl-nonce"
PROOF_KEY: Final = "edl-proof"
NONCE_BYTES: Final = 16
MOST_CHALLENGES: Final = 2
"""In one attempt: the master that sent the first may have been replaced before it was answered."""

_LONGEST: Final = 256

Metadata = tuple[tuple[str, str], ...]


class UnprovenMasterError(ContractError):
    """The process that answers does not know the job's secret: nothing more is sent to it."""


def member_proof(token: bytes, *, job: str, method: str, challenge: str, nonce: str) -> str:
    """The proof that a member sends."""
    return _proof(token, "member", job, method, challenge, nonce)


def master_proof(token: bytes, *, job: str, method: str, challenge: str, nonce: str) -> str:
    """The proof that the master sends in return, to the same nonces."""
    return _proof(token, "master", job, method, challenge, nonce)


def text_of(metadata: Iterable[tuple[str, str | bytes]] | None, key: str) -> str:
    """The value of a key in a call's metadata; empty: missing, no text, or too long for this protocol."""
    for name, value in metadata or ():
        if name == key and isinstance(value, str) and len(value) <= _LONGEST:
            return value
    return ""


class Prover:
    """The caller of one master.  Without a secret it proves and checks nothing."""

    def __init__(self, *, token: str, job: str) -> None:
        self._token = token.encode()
        self._job = job
        self._challenge = ""
        self.has_met_master = False
        """True once the master has proved itself; an unproven refusal may come from another process."""

    def begin(self, method: str) -> Proving:
        """A call that is about to be made; the known challenge is spent with it."""
        challenge, self._challenge = self._challenge, ""
        return Proving(self, method=method, challenge=challenge, nonce=secrets.token_hex(NONCE_BYTES))

    def store_challenge(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
        """Keeps the challenge that the master has sent; False: it has sent none."""
        self._challenge = text_of(metadata, CHALLENGE_KEY) or self._challenge
        return bool(self._token and self._challenge)

    def metadata(self, call: Proving) -> Metadata:
        """The metadata of this call."""
        if not self._token:
            return ()
        proof = member_proof(self._token, job=self._job, method=call.method, challenge=call.challenge, nonce=call.nonce)
        return ((CHALLENGE_KEY, call.challenge), (NONCE_KEY, call.nonce), (PROOF_KEY, proof))

    def check(self, call: Proving, initial: Iterable[tuple[str, str | bytes]] | None) -> None:
        """The master has answered this call and knows the secret.  Raises UnprovenMasterError."""
        if not self._token:
            return
        answer = tuple(initial or ())
        proof = master_proof(self._token, job=self._job, method=call.method, challenge=call.challenge, nonce=call.nonce)
        if not hmac.compare_digest(proof.encode(), text_of(answer, PROOF_KEY).encode()):
            raise UnprovenMasterError("the process at the master's address does not know this job's secret")
        self.has_met_master = True
        self.store_challenge(answer)


class Proving:
    """One call with its two nonces."""

    def __init__(self, prover: Prover, *, method: str, challenge: str, nonce: str) -> None:
        self._prover = prover
        self.method, self.challenge, self.nonce = method, challenge, nonce

    @property
    def metadata(self) -> Metadata:
        return self._prover.metadata(self)

    def check(self, initial: Iterable[tuple[str, str | bytes]] | None) -> None:
        """See `Prover.check`."""
        self._prover.check(self, initial)


def _proof(token: bytes, *parts: str) -> str:
    content = b"".join(len(part).to_bytes(4, "big") + part for part in (text.encode() for text in parts))
    return hmac.digest(token, b"edl 1" + content, "sha256").hex()
