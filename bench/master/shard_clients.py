"""One process of simulated trainers for `bench_dispatch`: real streams, no training, shards acked as they come.

    python -m bench.master.shard_clients ADDRESS JOB FIRST_ORDINAL TRAINERS SHARDS SECONDS RATE

RATE 0 is the closed loop: each trainer sends its next message when the answer has come.  Otherwise each trainer sends
on a schedule of its own, RATE messages a second from a random moment on (trainers do not march in step), and latency
counts from the scheduled time (no coordinated omission).
Prints one JSON object: cycles, seconds and the latencies in ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import dataclass, field

import grpc

from master.api.edl.master.v1 import master_pb2_grpc
from master.api.identities import DatasetSpec, Incarnation, Lease, MemberName
from master.api.messages.from_members import Ack, Acquire, Declare, Leave, RegisterTrainer, Return
from master.api.messages.to_members import Granted, MasterMessage, Registered, Wait
from master.api.wire.hello import Hello
from master.api.wire.message_codec import decode_master_envelope, encode_member_envelope

DATASET = DatasetSpec(name="bench", size=10**9, epochs=1, batch_size=1, seed=1)
WARM_UP_S = 1.0


@dataclass(slots=True)
class Tally:
    """What one process saw after the warm-up."""

    begun_s: float
    cycles: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def count(self, shards: int, sent_s: float) -> None:
        now = time.perf_counter()
        if now >= self.begun_s:
            self.cycles += shards
            self.latencies_ms.append((now - sent_s) * 1e3)


class Trainer:
    """One stream: acks what it was granted and asks for as much again."""

    def __init__(self, stub: master_pb2_grpc.MasterStub, job: str, ordinal: int, shards: int) -> None:
        self._call = stub.Connect()
        self._job, self._ordinal, self._shards = job, ordinal, shards
        self._request = 0
        self._held: tuple[Lease, ...] = ()

    async def register(self) -> None:
        name = MemberName(f"bench-{self._ordinal}")
        hello = RegisterTrainer(
            name=name,
            ordinal=self._ordinal,
            incarnation=Incarnation(f"{os.getpid()}-{self._ordinal}"),
        )
        await self._call.write(encode_member_envelope([hello, Declare(dataset=DATASET)], hello=Hello(job=self._job)))
        while not any(isinstance(m, Registered) for m in await self._read()):
            pass

    async def send(self) -> None:
        """The acks of what is held, and the next acquire, in one message."""
        self._request += 1
        acks = [Ack(token=lease.token, positions=lease.positions) for lease in self._held]
        await self._call.write(encode_member_envelope([*acks, Acquire(request=self._request, shards=self._shards)]))

    async def receive(self) -> int:
        """Wait for the grant; returns how many shards it brought."""
        while True:
            for message in await self._read():
                if isinstance(message, Granted):
                    self._held = message.leases
                    return len(message.leases)
                if isinstance(message, Wait):
                    self._held = ()
                    await asyncio.sleep(message.retry_after_s)
                    await self.send()

    async def leave(self) -> None:
        """What is held goes back: whoever just goes away makes its positions suspects, and the next run slower."""
        returns = [Return(token=lease.token, positions=lease.positions) for lease in self._held]
        await self._call.write(encode_member_envelope([*returns, Leave(reason="measured")]))
        await self._call.done_writing()
        while await self._call.read() is not grpc.aio.EOF:
            pass

    async def _read(self) -> tuple[MasterMessage, ...]:
        envelope = await self._call.read()
        if envelope is grpc.aio.EOF:
            raise SystemExit(f"the master closed the stream: {await self._call.code()} {await self._call.details()}")
        return decode_master_envelope(envelope)


async def closed_loop(trainer: Trainer, tally: Tally, until_s: float) -> None:
    while time.perf_counter() < until_s:
        sent = time.perf_counter()
        await trainer.send()
        tally.count(await trainer.receive(), sent)


async def open_loop(trainer: Trainer, tally: Tally, until_s: float, *, period_s: float, offset_s: float) -> None:
    due = time.perf_counter() + offset_s
    while due < until_s:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await trainer.send()
        tally.count(await trainer.receive(), due)
        due += period_s


async def main() -> None:
    address, job = sys.argv[1:3]
    first, trainers, shards = (int(word) for word in sys.argv[3:6])
    seconds, rate = (float(word) for word in sys.argv[6:8])
    async with grpc.aio.insecure_channel(address) as channel:
        stub = master_pb2_grpc.MasterStub(channel)
        crew = [Trainer(stub, job, first + k, shards) for k in range(trainers)]
        await asyncio.gather(*(trainer.register() for trainer in crew))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # all processes start together
        begun = time.perf_counter() + WARM_UP_S
        tally = Tally(begun_s=begun)
        until = begun + seconds
        if rate:
            period = 1.0 / rate
            loops = [
                open_loop(trainer, tally, until, period_s=period, offset_s=period * random.Random(first + k).random())  # noqa: S311  a seeded phase
                for k, trainer in enumerate(crew)
            ]
        else:
            loops = [closed_loop(trainer, tally, until) for trainer in crew]
        await asyncio.gather(*loops)
        await asyncio.gather(*(trainer.leave() for trainer in crew))
    print(json.dumps({"cycles": tally.cycles, "seconds": seconds, "latencies_ms": tally.latencies_ms}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
