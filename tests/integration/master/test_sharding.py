"""A real master process hands out shards over raw gRPC: ack, END, refusals (M2, M3)."""

import asyncio

import grpc
import grpc.aio
import pytest

from master.api.checkpoints.audit import read_checkpoint
from master.api.identities import DatasetSpec
from master.api.messages.from_members import Ack, Acquire, Declare
from master.api.messages.to_members import Ended, Granted, Refused, Registered, Wait
from master.api.positions import EMPTY, PositionSet, union
from master.api.wire.hello import Hello
from tests.harness.master_process import (
    JOB,
    MasterProcess,
    MemberStream,
    Sharder,
    overlaps,
    running,
    serving,
    wait_for_leader,
)
from tests.harness.master_status import get_status

DATASET = DatasetSpec(name="digits", size=500, epochs=2, batch_size=10)


@pytest.fixture
async def master(tmp_path):
    async with serving(MasterProcess(tmp_path, EDL_CHECKPOINT_EVERY_S="0.3")) as process:
        yield process


class Together(Sharder):
    """Trains nothing before the other one has a lease as well."""

    def __init__(self, both_have_begun):
        super().__init__(DATASET)
        self._begun = both_have_begun

    async def train(self, lease):
        if self._begun:
            await self._begun.wait()
            self._begun = None


async def test_two_trainers_share_a_job_to_its_end(master):
    """Every position is trained once, END comes only when all is committed, and the folder proves it (M1, M3)."""
    both_have_begun = asyncio.Barrier(2)
    trainers = [Together(both_have_begun) for _ in range(2)]
    await asyncio.gather(*(trainer.run(master.address) for trainer in trainers))
    acked = [positions for trainer in trainers for positions in trainer.trained]
    assert union(acked) == DATASET.everything
    assert overlaps(acked) == EMPTY
    assert all(trainer.trained for trainer in trainers)
    audit = read_checkpoint(master.checkpoints)
    assert audit.is_sound, audit.problems
    assert audit.head.is_complete
    assert (await get_status(master.address, JOB)).head == audit.head.id


async def test_an_ack_with_a_stale_token_changes_nothing(master):
    """Only the token of the live lease counts (M2); the positions stay somebody else's."""
    trainer = Sharder(DATASET)
    async with MemberStream(master.address) as member:
        await trainer.register(member)
        (lease,) = (await trainer.acquire(member)).leases
        stale = type(lease.token)(
            term=lease.token.term, lineage=lease.token.lineage, incarnation=lease.token.incarnation, number=999
        )
        await member.send(Ack(token=stale, positions=DATASET.everything))
        (second,) = (await trainer.acquire(member)).leases
        assert second.positions.isdisjoint(lease.positions)
        positions = (await get_status(master.address, JOB)).positions
        assert positions.done + positions.committed == 0
        assert positions.leased == len(lease.positions) + len(second.positions)


async def test_a_lost_answer_is_asked_for_again(master):
    """The same request gets the same leases, so a repeated message never leaks one (rule 10)."""
    trainer = Sharder(DATASET)
    async with MemberStream(master.address) as member:
        await trainer.register(member)
        first = await trainer.acquire(member, shards=3)
        await member.send(Acquire(request=first.request, shards=3))
        assert await member.receive_one(Granted) == first


async def test_a_broken_stream_keeps_its_leases(master):
    """A trainer that comes back in the window goes on with what it held (rule 18)."""
    trainer = Sharder(DATASET)
    async with MemberStream(master.address) as member:
        await trainer.register(member)
        trainer.held = (await trainer.acquire(member, shards=2)).leases
    held = trainer.held
    async with MemberStream(master.address) as member:
        registered = await trainer.register(member)
        assert union(lease.positions for lease in registered.kept) == union(lease.positions for lease in held)


async def test_others_wait_while_the_tail_is_held(master):
    """A tail is never lost because somebody read "empty" as "end" (M3)."""
    tiny = DatasetSpec(name="tiny", size=10, epochs=1, batch_size=10)
    holder, other = Sharder(tiny), Sharder(tiny)
    async with MemberStream(master.address) as first, MemberStream(master.address) as second:
        await holder.register(first)
        await other.register(second)
        leases = (await holder.acquire(first, shards=8)).leases
        assert union(lease.positions for lease in leases) == PositionSet.span(0, 10)
        await second.send(Acquire(request=1))
        assert isinstance(await second.receive_one(Granted, Wait, Ended), Wait)
        await first.send(*(Ack(token=lease.token, positions=lease.positions) for lease in leases))
        request = 2
        while isinstance(answer := await _ask(second, request), Wait):
            request += 1
            await asyncio.sleep(answer.retry_after_s)
        assert isinstance(answer, Ended)
    assert read_checkpoint(master.checkpoints).head.is_complete


async def _ask(member, request):
    await member.send(Acquire(request=request))
    return await member.receive_one(Granted, Wait, Ended)


async def test_another_data_set_is_refused(master):
    """Re-declared with another size: refused by name, nothing changed."""
    one, other = Sharder(DATASET), Sharder(DatasetSpec(name="digits", size=499, epochs=2, batch_size=10))
    async with MemberStream(master.address) as first, MemberStream(master.address) as second:
        await one.register(first)
        await second.send(other.registration())
        await second.receive_one(Registered)
        await second.send(Declare(dataset=other.dataset))
        refused = await second.receive_one(Refused)
        assert "size" in refused.field


@pytest.mark.parametrize(
    ("hello", "code", "text"),
    [
        (Hello(job="other"), grpc.StatusCode.FAILED_PRECONDITION, "called the master of"),
        (Hello(job="digits", newest=9, oldest=8), grpc.StatusCode.FAILED_PRECONDITION, "upgrade"),
    ],
)
async def test_a_foreign_hello_is_refused(master, hello, code, text):
    """Wrong job or wire version: the stream ends with the reason, before anything is taken from it."""
    async with MemberStream(master.address, hello=hello) as member:
        await member.send()
        with pytest.raises(grpc.aio.AioRpcError, match=text) as caught:
            await member.receive()
        assert caught.value.code() is code


async def test_a_member_without_a_word_is_sent_away(master):
    """No connection is held for somebody who says nothing."""
    async with MemberStream(master.address) as member:
        with pytest.raises(grpc.aio.AioRpcError, match="no hello") as caught:
            await member.receive()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_who_does_not_register_is_refused(master):
    """Members register first; the message that came too early is named."""
    async with MemberStream(master.address) as member:
        await member.send(Acquire(request=1))
        with pytest.raises(grpc.aio.AioRpcError, match="register first") as caught:
            await member.receive()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_secret_is_asked_for(tmp_path):
    """Without the job's secret neither stream nor status."""
    (tmp_path / "token").write_text("s3cret\n")
    async with running(MasterProcess(tmp_path, EDL_TOKEN_FILE=str(tmp_path / "token"))) as (master,):
        await wait_for_leader(master, token="s3cret")
        for token in ("", "wrong"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await get_status(master.address, JOB, token=token)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            async with MemberStream(master.address, token=token) as member:
                with pytest.raises(grpc.aio.AioRpcError, match="EDL_TOKEN_FILE"):
                    await member.receive()
        async with MemberStream(master.address, token="s3cret") as member:
            await Sharder(DATASET).register(member)
