"""The status of a job, asked from its master as any client does."""

from __future__ import annotations

import grpc.aio

from master.api.document import decode_document
from master.api.edl.master.v1 import master_pb2, master_pb2_grpc
from master.api.master_status import JobStatus
from master.api.wire.call_proof import Prover
from master.api.wire.calls import STATUS, call_master
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import Hello
from master.api.wire.message_codec import encode_hello


async def get_status(address: str, job: str, *, token: str = "", limit_s: float = 60.0) -> JobStatus:
    """The master's answer.  Raises AioRpcError."""
    prover = Prover(token=token, job=job)
    async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
        request = master_pb2.StatusRequest(hello=encode_hello(Hello(job=job)))
        stub = master_pb2_grpc.MasterStub(channel)
        reply = await call_master(prover, stub.Status, STATUS, request, limit_s=limit_s)
        return decode_document(JobStatus, reply.job_status_json)


async def try_status(address: str, job: str, *, token: str = "") -> JobStatus | None:
    """The answer within two seconds; None if no master answers."""
    try:
        return await get_status(address, job, token=token, limit_s=2.0)
    except grpc.aio.AioRpcError:
        return None


def describe_status(status: JobStatus | None) -> str:
    """A summary of a status, for error messages."""
    if status is None:
        return "no master answers"
    members = ", ".join(
        f"{m.name} {'' if m.is_connected else 'dis'}connected, {'serves' if m.is_serving else 'waits'}, has {m.leased}"
        for m in status.members
    )
    failure = status.failures[-1].message.splitlines()[-1:] if status.failures else []
    told = (
        status.problem,
        status.checkpoint_problem,
        status.store_problem,
        status.moves_problem,
        status.trainers_problem,
    )
    problems = "; ".join(filter(None, told)) or "no problem"
    return (
        f"{status.phase}, {problems}; term {status.term}, lineage {status.lineage}, "
        f"head {status.head}; {status.positions}; members: {members}; "
        f"{len(status.failures)} failures, {status.failures_in_a_row} in a row, the last: {failure}"
    )
