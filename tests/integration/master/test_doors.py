"""What the master shows and whom it lets in: metrics, TLS, status."""

import asyncio
import signal
import sys
import time
import urllib.request

import grpc
import grpc.aio
import pytest

from master.api.document import decode_document
from master.api.edl.master.v1 import master_pb2, master_pb2_grpc
from master.api.identities import DatasetSpec, MemberRole
from master.api.master_status import JobPhase, JobStatus
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import Hello
from master.api.wire.message_codec import encode_hello
from tests.harness.certificates import JobAuthority
from tests.harness.master_process import (
    JOB,
    MasterProcess,
    MemberStream,
    Sharder,
    free_port,
    running,
    serving,
    wait_for_condition,
)
from tests.harness.master_status import get_status

DATASET = DatasetSpec(name="digits", size=500, epochs=2, batch_size=10)


async def test_metrics_follow_the_convention(tmp_path):
    """Base units, `_total` for counters, one sample for each place of the positions."""
    port, begun_s = free_port(), time.time()
    async with serving(MasterProcess(tmp_path, EDL_METRICS_LISTEN=f"127.0.0.1:{port}")) as master:
        trainer = Sharder(DATASET)
        async with MemberStream(master.address) as member:
            await trainer.register(member)
            (lease,) = (await trainer.acquire(member)).leases
            page = await asyncio.to_thread(read_page, port)
    samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert samples["edl_master_leads"] == "1.0"
    assert begun_s <= float(samples["edl_master_clock_timestamp_seconds"]) <= time.time()
    assert samples["edl_master_streams"] == "1.0"
    assert float(samples['edl_master_positions{place="leased"}']) == len(lease.positions)
    assert samples['edl_master_members{role="trainer"}'] == "1.0"
    assert float(samples["edl_master_received_messages_total"]) >= 3
    problems = {what: samples[f'edl_master_problem{{what="{what}"}}'] for what in PROBLEMS}
    assert problems == dict.fromkeys(PROBLEMS, "0.0")
    assert samples["edl_master_reworked_positions_total"] == samples["edl_master_buckets_taken_over_total"] == "0.0"


PROBLEMS = ("training", "checkpoints", "store", "moves")


def read_page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        return page.read().decode()


async def test_status_tells_where_the_positions_are(tmp_path):
    """Their places add up to everything (M4); the trainer is named."""
    async with serving(MasterProcess(tmp_path)) as master:
        trainer = Sharder(DATASET)
        async with MemberStream(master.address) as member:
            await trainer.register(member)
            (lease,) = (await trainer.acquire(member)).leases
            status = await get_status(master.address, JOB)
    assert status.phase is JobPhase.TRAINING
    places = status.positions
    assert places.total == 1000
    assert places.leased == len(lease.positions)
    assert places.todo + places.leased + places.done + places.skipping + places.committed + places.quarantined == 1000
    assert [(m.name, m.role, m.is_connected) for m in status.members] == [(trainer.name, MemberRole.TRAINER, True)]


@pytest.mark.slow
async def test_a_member_that_was_stopped_is_missed(tmp_path):
    """Its stream breaks when no ping is answered (15 s), which opens the reconnect window (rule 18)."""
    async with serving(MasterProcess(tmp_path)) as master:
        member = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.programs.idle_member", master.address, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert await member.stdout.readline() == b"ready\n"
            assert (await get_status(master.address, JOB)).members[0].is_connected
            member.send_signal(signal.SIGSTOP)

            async def is_missed():
                return not (await get_status(master.address, JOB)).members[0].is_connected

            await wait_for_condition(is_missed)
        finally:
            member.kill()
            await member.wait()


# ---- TLS ------------------------------------------------------------------------------------------------------------


async def status_over_tls(address, trusted, own) -> JobStatus:
    credentials = grpc.ssl_channel_credentials(
        (trusted / "ca.crt").read_bytes(), (own / "tls.key").read_bytes(), (own / "tls.crt").read_bytes()
    )
    async with grpc.aio.secure_channel(address, credentials, options=CLIENT_OPTIONS) as channel:
        request = master_pb2.StatusRequest(hello=encode_hello(Hello(job=JOB)))
        reply = await master_pb2_grpc.MasterStub(channel).Status(request, timeout=60)
        return decode_document(JobStatus, reply.job_status_json)


async def test_only_certificates_of_the_job_come_in(tmp_path):
    """With TLS the job's authority signs both sides; another one's certificate and plain text are refused."""
    ours, theirs = JobAuthority("ours"), JobAuthority("theirs")
    ours.issue(tmp_path / "master")
    ours.issue(tmp_path / "member")
    theirs.issue(tmp_path / "stranger")
    async with running(MasterProcess(tmp_path, EDL_TLS_DIR=str(tmp_path / "master"))) as (master,):

        async def is_served():
            try:
                await status_over_tls(master.address, tmp_path / "member", tmp_path / "member")
            except grpc.aio.AioRpcError:
                return False
            return True

        await wait_for_condition(is_served)
        status = await status_over_tls(master.address, tmp_path / "member", tmp_path / "member")
        assert status.phase is JobPhase.STARTING
        with pytest.raises(grpc.aio.AioRpcError):
            await status_over_tls(master.address, tmp_path / "member", tmp_path / "stranger")
        with pytest.raises(grpc.aio.AioRpcError):
            await get_status(master.address, JOB)
