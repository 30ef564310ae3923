"""The number of servers and the master: asked over the wire, kept by etcd, take-overs in the middle of moves (M5)."""

import asyncio
import signal
import sys

import pytest

from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from autoscaler.jobs.progress import WhyNoAnswer
from tests.harness.job_processes import RealJob
from tests.harness.master_process import JOB, MasterProcess, free_port, running, serving, wait_for_leader
from tests.integration.master.test_doors import read_page
from tests.integration.trainer_sdk.pserver.test_servers_resized import check_ledger, hurry, paused

SIZE, EPOCHS, BATCH = 4000, 3, 20
ODD = 4  # buckets: one for each class of sizes and loads


async def ask(address, count, *, token=""):
    async with MasterConnections() as masters:
        return await masters.set_servers(MasterEndpoint(job=JOB, address=address, token=token), count)


# ---- asking ---------------------------------------------------------------------------------------------------------


async def test_the_answer_says_what_holds_and_what_may_be(tmp_path):
    """Outside the bounds: refused, with the field and the reason, and what held still holds."""
    port = free_port()
    settings = {"EDL_SERVERS": "2", "EDL_MAX_SERVERS": "4", "EDL_METRICS_LISTEN": f"127.0.0.1:{port}"}
    async with serving(MasterProcess(tmp_path, **settings)) as master:
        answer = await ask(master.address, 3)
        assert (answer.count, answer.least, answer.most, answer.refused) == (3, 1, 4, None)
        refused = await ask(master.address, 5)
        assert (refused.count, refused.refused.field) == (3, "servers")
        assert "1 to 4" in refused.refused.message
        assert "3 servers are wanted" in master.log
        page = await asyncio.to_thread(read_page, port)
    samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    found = {kind: samples[f'edl_master_servers{{kind="{kind}"}}'] for kind in ("ready", "wanted", "max")}
    assert found == {"ready": "0.0", "wanted": "3.0", "max": "4.0"}
    assert samples["edl_master_moving_buckets"] == "0.0"


async def test_a_job_without_servers_is_refused_any(tmp_path):
    async with serving(MasterProcess(tmp_path)) as master:
        answer = await ask(master.address, 1)
        assert (answer.count, answer.most, answer.refused.field) == (0, 0, "servers")


async def test_who_may_not_see_the_status_may_not_ask_for_servers(tmp_path):
    secret = tmp_path / "token"
    secret.write_text("open-sesame\n")
    master = MasterProcess(tmp_path, EDL_SERVERS="1", EDL_MAX_SERVERS="2", EDL_TOKEN_FILE=str(secret))
    async with running(master):
        await wait_for_leader(master, token="open-sesame")
        assert await ask(master.address, 2, token="wrong") is WhyNoAnswer.NOT_LEADING
        assert (await ask(master.address, 2, token="open-sesame")).count == 2


# ---- take-overs -----------------------------------------------------------------------------------------------------


def is_even(progress, ordinals):
    """These servers have all buckets, as many each as may be, and none is on its way."""
    held = {ordinal: count for ordinal, count in progress.buckets if count}
    return set(held) == ordinals and max(held.values()) - min(held.values()) <= ODD and not progress.moving


class Resized(RealJob):
    """A job on etcd, whose master may die and come back."""

    def __init__(self, folder, etcd):
        super().__init__(
            folder,
            servers=2,
            EDL_MAX_SERVERS="3",
            EDL_ETCD_ENDPOINTS=",".join(etcd.endpoints),
            EDL_CHECKPOINT_EVERY_S="0.5",
            EDL_GRACE_S="40",
        )
        self.out = folder / "out.npz"

    def begin(self):
        arguments = ("--size", SIZE, "--epochs", EPOCHS, "--batch-size", BATCH, *paused(self, 0.3), "--dense")
        self.trained = self.trainer(0, "ledger.py", *arguments, "--out", self.out)
        self.wait_until(lambda progress: progress.committed > 0, "the first commit")

    def wait_until(self, condition, what):
        """Of what the master says while it leads."""

        async def look():
            async with MasterConnections() as masters:
                return await masters.try_poll(MasterEndpoint(job=JOB, address=self.address, token=""))

        def found():
            progress = asyncio.run(look())
            return progress if progress is not None and condition(progress) else None

        return self.wait_for(found, what)

    def wait_until_even(self, ordinals):
        self.wait_until(lambda progress: is_even(progress, ordinals), f"buckets on the servers {sorted(ordinals)}")

    def stop_third_amid_moves(self):
        """A third server, which stands still while buckets are on their way to it: not all have come before."""
        while True:
            self.want(3)
            third = self.server(2)
            self.wait_until(lambda progress: progress.servers == 3, "the third server to enter")
            third.send_signal(signal.SIGSTOP)
            if self.wait_until(lambda progress: progress.moving or is_even(progress, {0, 1, 2}), "moves").moving:
                return third
            third.send_signal(signal.SIGCONT)
            self.want(2)
            assert self.wait_for_exit(third) == 0

    def want(self, count):
        def is_answered():
            answer = asyncio.run(ask(self.address, count))
            return not isinstance(answer, WhyNoAnswer) and answer.count == count

        self.wait_for(is_answered, f"{count} servers to be wanted")

    def replace_master(self, stopped):
        """By one that leads; who stood still meanwhile goes on as soon as the first one is dead."""
        self.processes[0].kill()
        self.processes[0].wait()
        stopped.send_signal(signal.SIGCONT)
        command = [sys.executable, "-m", "master"]
        settings = {"EDL_SERVERS": "2", "EDL_LISTEN": self.address, "EDL_CHECK_INVARIANTS": "1"}
        self.processes[0] = self.start("master", command, **settings)
        self.processes.pop()
        self.wait_until(lambda progress: progress.term > 0, "the next master to lead")


@pytest.fixture
async def job(etcd, tmp_path):
    job = await asyncio.to_thread(Resized, tmp_path, etcd)
    try:
        await asyncio.to_thread(job.begin)
        yield job
    finally:
        await asyncio.to_thread(job.stop)


@pytest.mark.chaos
async def test_a_master_that_dies_while_a_server_joins_is_followed_by_one_that_goes_on(job):
    """The target stands still, so buckets are on their way for sure; nobody is rolled back, counters are exact."""

    def resize():
        job.replace_master(job.stop_third_amid_moves())
        job.wait_until(lambda progress: progress.servers_wanted == 3, "the number to be known")
        job.wait_until_even({0, 1, 2})
        hurry(job).touch()
        assert job.wait_for_exit(job.trained) == 0
        check_ledger(job, [job.out], EPOCHS)

    await asyncio.to_thread(resize)


@pytest.mark.chaos
async def test_a_master_that_dies_while_a_server_is_emptied_is_followed_by_one_that_lets_it_go(job):
    """The number that is wanted outlives the master that heard it."""

    def resize():
        job.want(3)
        third = job.server(2)
        job.wait_until_even({0, 1, 2})
        job.processes[1].send_signal(signal.SIGSTOP)
        job.want(2)
        job.wait_until(lambda progress: progress.moving, "a bucket on its way")
        job.replace_master(job.processes[1])
        job.wait_until_even({0, 1})
        assert job.wait_for_exit(third) == 0
        hurry(job).touch()
        assert job.wait_for_exit(job.trained) == 0
        check_ledger(job, [job.out], EPOCHS)

    await asyncio.to_thread(resize)
