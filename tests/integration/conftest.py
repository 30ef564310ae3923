"""etcd for the tests: found or built once a session, one server (or three members) for each test that asks."""

import os
import sys

import pytest

from master.etcd_server.cluster import start_etcd
from master.etcd_server.finder import find_etcd
from master.store.etcd.config import EtcdConfig
from master.store.etcd.store import EtcdStore


@pytest.fixture(scope="session")
def etcd_binary():
    """A version that keeps its promises under kill; building it may take minutes, once per user."""
    return find_etcd(
        allow_demo_version=False,
        environ=os.environ,
        say=lambda line: print(f"etcd: {line}", file=sys.__stderr__, flush=True),
    )


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
