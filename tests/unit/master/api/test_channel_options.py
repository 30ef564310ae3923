"""gRPC ignores an option whose name it does not know, and says nothing."""

from pathlib import Path

import pytest
from grpc._cython import cygrpc

from master.api.wire.grpc_options import CLIENT_OPTIONS, SERVER_OPTIONS
from master.store.etcd.etcd_channel import OPTIONS as ETCD_OPTIONS

LIBRARY = Path(cygrpc.__file__).read_bytes()


@pytest.mark.parametrize("name", sorted({name for name, _ in (*CLIENT_OPTIONS, *SERVER_OPTIONS, *ETCD_OPTIONS)}))
def test_every_option_is_one_that_grpc_reads(name):
    """One that was misspelt let a master send each quiet server away once a minute, in the middle of its commits."""
    assert name.encode() in LIBRARY


def test_pings_are_rarer_than_the_server_allows():
    """Else it answers with GOAWAY: the two sides' numbers belong together."""
    allowed_ms = dict(SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]
    assert dict(CLIENT_OPTIONS)["grpc.keepalive_time_ms"] > allowed_ms
