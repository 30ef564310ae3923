"""Whose process is at the other end of a connection on this machine."""

import sys

import pytest

from autoscaler.page.access.peer_user import parse_owner

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   {n}: {local} {remote} 01 00000000:00000000 00:00000000 00000000  {uid:>4}        0 5909872 1 0 20 4 0 10 -1\n"
CLIENT, SERVER = "0100007F:C350", "0100007F:9CBB"
MAPPED = "0000000000000000FFFF0000"


@pytest.mark.skipif(sys.byteorder != "little", reason="the lines are those of such a machine")
@pytest.mark.parametrize("prefix", ["", MAPPED])
def test_the_client_s_end_tells_its_owner(prefix):
    """Not the server's end of the same connection, and not another connection to the same server."""
    rows = [("0100007F:C351", SERVER, 7), (SERVER, CLIENT, 0), (CLIENT, SERVER, 1000)]
    lines = [HEAD] + [
        ROW.format(n=n, local=prefix + local, remote=prefix + remote, uid=uid)
        for n, (local, remote, uid) in enumerate(rows)
    ]
    assert parse_owner(lines, CLIENT, SERVER) == 1000


def test_a_socket_that_is_not_listed_has_no_owner():
    assert parse_owner([HEAD, "\n", "   0: torn"], CLIENT, SERVER) is None
