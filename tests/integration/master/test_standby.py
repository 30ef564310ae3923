"""A master that stands by: nobody until it is told that the process before it at its place is dead (M5, ADR 0202)."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from master.api.host.signals import TAKE_OVER

MASTER = "ledger-master-0"
BUDGET_S = 90.0


@pytest.fixture
async def store(etcd, open_store):
    return open_store(etcd, job="ledger")


@pytest.fixture
def start_standby(etcd, tmp_path):
    """Starts a master as its supervisor does one that stands by."""
    started = []

    def start():
        environment = os.environ | {
            "EDL_JOB": "ledger",
            "EDL_NAME": MASTER,
            "EDL_STANDBY": "1",
            "EDL_ADDRESS_FILE": str(tmp_path / "address"),
            "EDL_CHECKPOINT_URI": str(tmp_path / "checkpoints"),
            "EDL_ETCD_ENDPOINTS": ",".join(etcd.endpoints),
        }
        block = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {TAKE_OVER})  # noqa: E731
        command = [sys.executable, "-m", "master"]
        log = (tmp_path / "log").open("wb")
        with log:
            process = subprocess.Popen(command, env=environment, stderr=log, preexec_fn=block)  # noqa: PLW1509 - one signal
        started.append(process)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_an_order_that_comes_before_it_has_started_is_kept(start_standby, tmp_path, store):
    """The master before may die while its standby's interpreter starts."""
    process = start_standby()
    process.send_signal(TAKE_OVER)
    async with asyncio.timeout(BUDGET_S):
        while await store.read_leader() is None:  # noqa: ASYNC110 - in etcd
            await asyncio.sleep(0.05)
    assert (tmp_path / "address").exists()
    assert process.poll() is None


async def test_one_that_stands_by_listens_nowhere_and_ends_when_it_is_told(start_standby, tmp_path, store):
    """Until its time has come it is nobody."""
    process = start_standby()
    async with asyncio.timeout(BUDGET_S):
        while b"stands by" not in (tmp_path / "log").read_bytes():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    assert not (tmp_path / "address").exists()
    assert await store.read_leader() is None
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, BUDGET_S) == 0
