"""One question to a master, with proof on both sides that they know the job's secret (`proof`)."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio

from master.api.proof import Prover

CONNECT: Final = "/edl.master.v1.Master/Connect"
STATUS: Final = "/edl.master.v1.Master/Status"
SET_SERVERS: Final = "/edl.master.v1.Master/SetServers"


async def ask_master(prover: Prover, method: Any, name: str, request: Any, *, limit_s: float) -> Any:
    """The answer of a master that has proved itself, within `limit_s` or, for the first question, twice that.

    `method` is the stub's, `name` one of the above.  Raises AioRpcError, UnprovenMasterError.
    """
    proving = prover.begin(name)
    call = method(request, timeout=limit_s, metadata=proving.metadata)
    try:
        reply = await call
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAUTHENTICATED or not prover.learn(error.trailing_metadata()):
            raise
        proving = prover.begin(name)
        call = method(request, timeout=limit_s, metadata=proving.metadata)
        reply = await call
    proving.check(await call.initial_metadata())
    return reply
