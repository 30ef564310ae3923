"""Authentication of gRPC calls by the job's secret: a call without proof is refused before its message is read.

The problem: gRPC reads a message of up to 64 MiB before it calls the method; twenty unauthenticated calls took a
master to 2 GB.  So the proof is in the metadata (`api.wire.call_proof`).  Challenges carry their own MAC and time, so
unauthenticated requests for them take no memory here.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio

from master.api.wire.call_proof import (
    CHALLENGE_KEY,
    NONCE_BYTES,
    NONCE_KEY,
    PROOF_KEY,
    Metadata,
    master_proof,
    member_proof,
    text_of,
)
from master.api.wire.hello import ANSWERED_METADATA_KEY

CHALLENGE_TTL_S: Final = 300.0
"""Life of a challenge; the cluster side calls every few seconds with the challenge of the last answer."""

MOST_SPENT: Final = 65_536  # challenges of members; 300 s of 200 calls a second
_TIME_BYTES: Final = 8
_SEAL_BYTES: Final = 16
_REFUSAL: Final = (
    "this job requires a proof of its token: check EDL_TOKEN_FILE, and run the same EDL release on both sides"
)


class Challenges:
    """Challenges that are accepted once, within their time, by the process that issued them.  `clock`: monotonic
    seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most_spent: int = MOST_SPENT) -> None:
        self._clock = clock
        self._most_spent = most_spent
        self._key = secrets.token_bytes(32)
        self._spent: OrderedDict[str, int] = OrderedDict()
        self._oldest_ns = 0  # of those that may still be spent

    def issue(self) -> str:
        """A new challenge."""
        content = self._now_ns().to_bytes(_TIME_BYTES, "big") + secrets.token_bytes(NONCE_BYTES)
        return (content + self._mac(content)).hex()

    def is_valid(self, challenge: str) -> bool:
        """True if the challenge is this process's own, recent, and not spent."""
        try:
            content = bytes.fromhex(challenge)
        except ValueError:
            return False
        if len(content) != _TIME_BYTES + NONCE_BYTES + _SEAL_BYTES or content.hex() != challenge:
            return False
        if not hmac.compare_digest(self._mac(content[:-_SEAL_BYTES]), content[-_SEAL_BYTES:]):
            return False
        issued_ns = int.from_bytes(content[:_TIME_BYTES], "big")
        return issued_ns > max(self._oldest_ns, self._expired_ns()) and challenge not in self._spent

    def spend(self, challenge: str) -> None:
        """A good challenge of a member is not accepted again.

        Where too many are remembered, all challenges as old as the oldest are refused from then on.
        """
        self._spent[challenge] = int.from_bytes(bytes.fromhex(challenge)[:_TIME_BYTES], "big")
        while self._spent:
            first = next(iter(self._spent))
            if len(self._spent) <= self._most_spent and self._spent[first] > self._expired_ns():
                return
            self._oldest_ns = max(self._oldest_ns, self._spent.pop(first))

    def _mac(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SEAL_BYTES]

    def _now_ns(self) -> int:
        return int(self._clock() * 1e9) + 1

    def _expired_ns(self) -> int:
        return self._now_ns() - int(CHALLENGE_TTL_S * 1e9)


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Lets calls through that prove the secret, each challenge once."""

    def __init__(self, *, token: bytes, job: str, challenges: Challenges | None = None) -> None:
        self._token = token
        self._job = job
        self._challenges = challenges or Challenges()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The method's own handler, or one that refuses and reads no message."""
        if self.admits(details.method, details.invocation_metadata):
            return await continuation(details)
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    def admits(self, method: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
        """True if the call proves the secret; its challenge is spent then."""
        sent = tuple(metadata or ())
        challenge, nonce = text_of(sent, CHALLENGE_KEY), text_of(sent, NONCE_KEY)
        proof = member_proof(self._token, job=self._job, method=method, challenge=challenge, nonce=nonce)
        is_proved = hmac.compare_digest(proof.encode(), text_of(sent, PROOF_KEY).encode())
        if not (is_proved and self._challenges.is_valid(challenge)):
            return False
        self._challenges.spend(challenge)
        return True

    def answer(self, method: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
        """The master's own proof to a call that was let through, and the challenge for the next one."""
        sent = tuple(metadata or ())
        challenge, nonce = text_of(sent, CHALLENGE_KEY), text_of(sent, NONCE_KEY)
        proof = master_proof(self._token, job=self._job, method=method, challenge=challenge, nonce=nonce)
        return ((CHALLENGE_KEY, self._challenges.issue()), (PROOF_KEY, proof))

    async def _refuse(self, _requests: object, context: Any) -> None:
        trailing = ((ANSWERED_METADATA_KEY, "1"), (CHALLENGE_KEY, self._challenges.issue()))
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL, trailing_metadata=trailing)
