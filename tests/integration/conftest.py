"""etcd for the tests: found or built once a session, one server (or three members) for each test that asks.

And parameter servers in this process, for those that ask for them.
"""

import os
import resource
import sys
import threading

import pytest

from autoscaler.etcd_server.etcd_members import start_etcd
from autoscaler.etcd_server.finder import find_etcd
from master.store.etcd import etcd_channel
from master.store.etcd.etcd_config import EtcdConfig
from master.store.etcd.etcd_store import EtcdStore
from tests.integration.trainer_sdk.pserver.in_process_servers import Job


@pytest.fixture
def many_descriptors():
    """A thousand connections of strangers come from this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def etcd_binary():
    """A version that keeps its promises under kill; building it may take minutes, once per user."""
    return find_etcd(
        allow_demo_version=False,
        environ=os.environ,
        report=lambda line: print(f"etcd: {line}", file=sys.__stderr__, flush=True),
    )


@pytest.fixture
def patient_connections(monkeypatch):
    """A store's connection to etcd may take a minute to be made: the machine may be busy."""
    options = dict(etcd_channel.OPTIONS) | {"grpc.min_reconnect_backoff_ms": 60_000}
    monkeypatch.setattr(etcd_channel, "OPTIONS", tuple(options.items()))


@pytest.fixture
async def etcd(etcd_binary, tmp_path):
    """One member, which a test may kill, pause and restart."""
    async with start_etcd(etcd_binary, tmp_path / "etcd") as cluster:
        yield cluster


@pytest.fixture
async def etcd_of_three(etcd_binary, tmp_path):
    async with start_etcd(etcd_binary, tmp_path / "etcd", members=3) as cluster:
        yield cluster


@pytest.fixture
async def open_store():
    """Makes stores of a cluster; all are closed at the end."""
    stores = []

    def open_store(cluster, job="digits", **settings):
        stores.append(EtcdStore(EtcdConfig(endpoints=cluster.endpoints, **settings), job))
        return stores[-1]

    yield open_store
    for store in stores:
        await store.close()


@pytest.fixture
def new_job(tmp_path):
    """Makes jobs on one checkpoint folder and closes them."""
    jobs = []

    def make(count, **more):
        jobs.append(Job(tmp_path / "checkpoints", count, **more))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()
    alive = [t.name for t in threading.enumerate() if t.name in {"accept", "deadlines", "bucket sender"}]
    assert alive == []
