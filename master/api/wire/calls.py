"""A unary call to a master, with proof on both sides that they know the job's secret (`call_proof`)."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio

from master.api.wire.call_proof import MOST_CHALLENGES, Prover

CONNECT: Final = "/edl.master.v1.Master/Connect"
STATUS: Final = "/edl.master.v1.Master/Status"
SET_SERVERS: Final = "/edl.master.v1.Master/SetServers"


async def call_master(prover: Prover, method: Any, name: str, request: Any, *, limit_s: float) -> Any:
    """The answer of a master that has proved itself; each call has `limit_s`, and a challenge costs one more.

    `method` is the stub's, `name` one of the above.  Raises AioRpcError, UnprovenMasterError.
    """
    for challenges_left in range(MOST_CHALLENGES, -1, -1):
        proving = prover.begin(name)
        call = method(request, timeout=limit_s, metadata=proving.metadata)
        try:
            reply = await call
        except grpc.aio.AioRpcError as error:
            is_challenge = error.code() is grpc.StatusCode.UNAUTHENTICATED and prover.store_challenge(
                error.trailing_metadata()
            )
            if not (is_challenge and challenges_left):
                raise
            continue
        proving.check(await call.initial_metadata())
        return reply
    raise AssertionError("the last call was answered or has raised")
