"""Asks a job's master how far it is: the cluster side's one door to `master.api`'s Status call."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import grpc
import grpc.aio

from autoscaler.jobs.progress import JobProgress, progress_of
from master.api.channel import CLIENT_OPTIONS
from master.api.codec import encode_hello
from master.api.document import decode_document
from master.api.edl.master.v1 import master_pb2
from master.api.edl.master.v1.master_pb2_grpc import MasterStub
from master.api.errors import ContractError
from master.api.hello import TOKEN_METADATA_KEY, Hello
from master.api.status import JobStatus

if TYPE_CHECKING:
    from master.api.edl.master.v1.master_pb2_grpc import MasterAsyncStub  # exists for type checkers alone

_DEADLINE_S: Final = 1.0

log = logging.getLogger(__name__)


class Masters:
    """A channel to each master.  An async context: they are closed behind it."""

    def __init__(self, token_file: Path) -> None:
        self._token = token_file.read_text(encoding="utf-8").strip()
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def look(self, job: str, address: str) -> JobProgress | None:
        """What the master of the job at host:port says; None when it gives no answer within a second."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)
        stub: MasterAsyncStub = MasterStub(channel)
        request = master_pb2.StatusRequest(hello=encode_hello(Hello(job=job, software="edl")))
        try:
            reply = await stub.Status(request, timeout=_DEADLINE_S, metadata=((TOKEN_METADATA_KEY, self._token),))
            return progress_of(decode_document(JobStatus, reply.job_status_json))
        except grpc.aio.AioRpcError:
            return None  # starting, restarting, or not leading
        except ContractError as error:
            log.warning("the master of %s answers what this version does not read: %s", job, error)
            return None
