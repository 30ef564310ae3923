"""Numbers that belong to etcd are etcd's own: ours are held against what its program says of itself."""

import os
import re
import subprocess

import pytest

from autoscaler.etcd_server.finder import find_etcd
from master.store.etcd.etcd_channel import OPTIONS
from master.store.store_port import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEYS, MAX_VALUE_BYTES


@pytest.fixture(scope="module")
def defaults():
    """What each flag of the program is unless it is set; `edl` and the chart set none of these."""
    etcd = find_etcd(allow_demo_version=True, environ=os.environ, report=print)
    said = subprocess.run([etcd.path, "--help"], check=True, capture_output=True, text=True)
    return dict(re.findall(r"--([a-z-]+) '([^']*)'", said.stdout + said.stderr))


def test_pings_are_no_faster_than_etcd_allows(defaults):
    """It answers faster ones with GOAWAY, and every request under way is lost."""
    assert defaults["grpc-keepalive-min-time"].endswith("s")
    allowed_s = float(defaults["grpc-keepalive-min-time"].removesuffix("s"))
    assert dict(OPTIONS)["grpc.keepalive_time_ms"] > allowed_s * 1_000


def test_transactions_are_smaller_than_etcd_allows(defaults):
    """One that it refuses for its size would be refused for ever (M6)."""
    assert MAX_VALUE_BYTES <= MAX_TRANSACTION_BYTES <= 0.9 * int(defaults["max-request-bytes"])
    allowed = int(defaults["max-txn-ops"])
    assert allowed > MAX_TRANSACTION_KEYS  # and the leader key is compared
