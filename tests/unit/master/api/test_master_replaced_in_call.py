"""A caller meets two masters in one attempt: the one that challenged it is gone, the next knows no such challenge."""

import asyncio
from types import SimpleNamespace

import grpc
import pytest

from master.api.wire.call_proof import CHALLENGE_KEY, Prover
from master.api.wire.calls import CONNECT, STATUS, call_master
from master.process.auth_interceptor import AuthInterceptor
from trainer_sdk.master_stream import _connect

TOKEN, JOB = "s3cret" * 8, "digits"


class Call:
    """One call to a master, as gRPC tells of it."""

    def __init__(self, gate, method, metadata):
        self._gate, self._method, self._metadata = gate, method, metadata
        self._is_let_in = gate.admits(method, metadata)
        self.is_cancelled = False

    async def initial_metadata(self):
        return self._gate.answer(self._method, self._metadata) if self._is_let_in else ()

    async def trailing_metadata(self):
        return () if self._is_let_in else ((CHALLENGE_KEY, self._gate._challenges.issue()),)

    async def read(self):
        if not self._is_let_in:
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAUTHENTICATED, (), await self.trailing_metadata(), details="a proof is asked for"
            )
        return "the answer"

    def __await__(self):
        return self.read().__await__()

    def cancel(self):
        self.is_cancelled = True


class Masters:
    """Each call meets the next of these, the last one again and again; each has challenges of its own."""

    def __init__(self, count, *, token=TOKEN):
        self._gates = [AuthInterceptor(token=token.encode(), job=JOB) for _ in range(count)]
        self.calls = 0

    def call(self, method, metadata):
        gate = self._gates[min(self.calls, len(self._gates) - 1)]
        self.calls += 1
        return Call(gate, method, metadata)

    async def connect(self, prover):
        return await _connect(SimpleNamespace(Connect=lambda *, metadata: self.call(CONNECT, metadata)), prover)

    async def ask(self, prover):
        return await call_master(
            prover, lambda _, *, timeout, metadata: self.call(STATUS, metadata), STATUS, None, limit_s=60.0
        )


@pytest.mark.parametrize("way", ["connect", "ask"])
async def test_a_master_that_is_replaced_between_challenge_and_proof_refuses_nobody(way):
    """A trainer that had met no master before was told that its secret is wrong, and gave up for good (A6)."""
    prover, masters = Prover(token=TOKEN, job=JOB), Masters(2)
    await asyncio.wait_for(getattr(masters, way)(prover), 60)
    assert prover.has_met_master
    assert masters.calls == 3


@pytest.mark.parametrize("way", ["connect", "ask"])
async def test_a_wrong_secret_is_shown_thrice_and_then_refused(way):
    """The word of masters that go on refusing is final."""
    prover, masters = Prover(token="another", job=JOB), Masters(1)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asyncio.wait_for(getattr(masters, way)(prover), 60)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert masters.calls == 3
    assert not prover.has_met_master
