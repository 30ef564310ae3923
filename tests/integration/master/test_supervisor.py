"""A container's two masters: one leads, one stands by, and whoever ends the container ends both (ADR 0203, M5)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.secured_etcd import UNHURRIED

BUDGET_S = 100.0
LONG_TTL_S = "600"  # nobody who waits for the end of such a lease is in time
NAME = "digits-master-0"


class Container:
    """The processes of `python -m master.supervisor`, and what they wrote."""

    def __init__(self, folder, etcd, program=("-m", "master.supervisor"), **more):
        self.log = folder / "log"
        environment = os.environ | {
            "EDL_JOB": "digits",
            "EDL_NAME": NAME,
            "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
            "EDL_ETCD_ENDPOINTS": ",".join(etcd.endpoints),
            "EDL_LISTEN": f"unix:{folder}/m",
            **more,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, *program], env=environment, stderr=log)

    @property
    def masters(self):
        """Its children."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        return [int(pid) for pid in text.split()]

    async def until(self, condition, what):
        """The condition's first true answer."""
        deadline_s = time.monotonic() + BUDGET_S
        while not (found := condition()):
            assert time.monotonic() < deadline_s, f"{what}: {self.log.read_text()}"
            await asyncio.sleep(0.02)
        return found

    async def until_stands_by(self, times):
        """So many have stood by so far."""
        await self.until(lambda: self.log.read_text().count("stands by") >= times, "one that stands by")

    async def wait(self):
        return await asyncio.to_thread(self.process.wait, BUDGET_S)


@pytest.fixture
def start(tmp_path, etcd):
    started = []

    def start(**more):
        started.append(Container(tmp_path, etcd, **more))
        return started[-1]

    yield start
    for container in started:
        container.process.kill()
        container.process.wait()


async def leader_after(store, term):
    async with asyncio.timeout(BUDGET_S):
        while (leader := await store.read_leader()) is None or leader.term <= term:  # noqa: ASYNC110 - in etcd
            await asyncio.sleep(0.02)
    return leader


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


async def test_a_master_that_dies_is_followed_in_its_container(start, etcd, open_store):
    """Again and again, under the same name, without waiting for the lease; then both end in order with it."""
    store, container, term = open_store(etcd, job="digits", **UNHURRIED), start(EDL_LEADER_TTL_S=LONG_TTL_S), 0
    for stood_by in (1, 2):
        leader = await leader_after(store, term)
        term = leader.term
        await container.until_stands_by(stood_by)
        first, second = container.masters
        os.kill(first, signal.SIGKILL)
        following = await leader_after(store, term)
        assert following.holder == leader.holder
        assert second in container.masters
    await container.until_stands_by(3)
    both = container.masters
    container.process.send_signal(signal.SIGTERM)
    assert await container.wait() == 0
    assert all(is_gone(pid) for pid in both)
    assert await store.read_leader() is None  # given back in order


async def test_a_master_that_is_stopped_is_left_to_whoever_asks_it(start, etcd, open_store):
    """It is not dead: nobody takes over, and it goes on when it wakes up."""
    store, container = open_store(etcd, job="digits", **UNHURRIED), start(EDL_LEADER_TTL_S=LONG_TTL_S)
    leader = await leader_after(store, 0)
    await container.until_stands_by(1)
    first, second = container.masters
    os.kill(first, signal.SIGSTOP)
    await asyncio.sleep(2.0)
    assert await store.read_leader() == leader
    os.kill(first, signal.SIGCONT)
    assert container.masters == [first, second]
    assert "takes over" not in container.log.read_text()


async def test_a_standby_that_dies_is_followed_by_another(start, etcd, open_store):
    """Nobody asks a dead one to take over: else the master's own death, much later, would wait for an interpreter."""
    store, container = open_store(etcd, job="digits", **UNHURRIED), start(EDL_LEADER_TTL_S=LONG_TTL_S)
    leader = await leader_after(store, 0)
    await container.until_stands_by(1)
    serves, died = container.masters
    os.kill(died, signal.SIGKILL)
    await container.until_stands_by(2)
    assert await store.read_leader() == leader
    assert container.masters[0] == serves
    assert died not in container.masters


async def test_masters_end_with_whoever_keeps_them(start, etcd, open_store):
    """Killed with SIGKILL, as by a runtime that ends the container."""
    store, container = open_store(etcd, job="digits", **UNHURRIED), start()
    await leader_after(store, 0)
    await container.until_stands_by(1)
    both = container.masters
    container.process.kill()
    await container.until(lambda: all(is_gone(pid) for pid in both), "the masters' end")


async def test_what_another_start_cannot_mend_ends_the_container(start):
    """With the master's own exit code and words."""
    container = start(EDL_CHECKPOINT_EVERY_S="never")
    assert await container.wait() == 2
    assert "EDL_CHECKPOINT_EVERY_S" in container.log.read_text()


async def test_masters_that_die_one_after_another_end_the_container(start):
    """A kubelet restarts it with pauses of its own: five deaths in a minute are something else than bad luck.

    Here they are so within any time: a busy machine needs more than a minute to start six masters.
    """
    program = "from master import supervisor; supervisor.DEATHS_WITHIN_S = 1e9; raise SystemExit(supervisor.main())"
    container = start(program=("-c", program))
    for stood_by in range(1, 5):
        await container.until_stands_by(stood_by)
        os.kill(container.masters[0], signal.SIGKILL)
    await container.until_stands_by(5)
    os.kill(container.masters[0], signal.SIGKILL)
    assert await container.wait() == 128 + signal.SIGKILL
