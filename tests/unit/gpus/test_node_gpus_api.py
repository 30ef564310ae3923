"""What the agent is told about itself: where the API server is, and which node this is."""

from __future__ import annotations

import pytest

from autoscaler.errors import PermanentError
from autoscaler.gpus.agent.node_gpus_api import NodeGpusApi, server_of_environment
from tests.harness.certificates import ClusterAuthority


@pytest.fixture
def account(tmp_path):
    """A service account's folder, with a token that names no node."""
    ClusterAuthority(tmp_path)
    (tmp_path / "token").write_text("a.b.c")
    return tmp_path


@pytest.mark.parametrize("server", ["10.0.0.1:tcp", "https://10.0.0.1", "[::1]:x"])
def test_a_server_that_is_no_address_is_refused_at_the_start(account, server):
    """And not by the first report, with a traceback."""
    with pytest.raises(PermanentError, match="HOST:PORT"):
        NodeGpusApi(server, account=account)


def test_the_servers_address_is_told_by_the_kubelet(account, monkeypatch):
    """Also one of IPv6."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert server_of_environment() == "[fd00::1]:443"
    assert NodeGpusApi(server_of_environment(), account=account).identity("gpu-1").node == "gpu-1"


@pytest.mark.parametrize("node", ["../../api/v1/nodes", "n 1", "N1", f"n{300 * '1'}", "n1?x=y", "n1-"])
def test_what_is_no_name_of_a_node_is_refused(account, node):
    """It would become a part of the address."""
    with pytest.raises(PermanentError, match="--node"):
        NodeGpusApi("127.0.0.1:1", account=account).identity(node)
