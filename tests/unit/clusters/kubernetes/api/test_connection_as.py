"""A connection under somebody else's token: nothing of the configured identity goes with it."""

import base64

import pytest
import yaml

from autoscaler.clusters.kubernetes.api.connection import (
    ApiRequest,
    ConnectionPolicy,
    open_connection,
    open_connection_as,
)
from autoscaler.errors import PermanentError
from tests.harness.certificates import ClusterAuthority


@pytest.fixture
def kubeconfig(tmp_path):
    """With a client certificate and a token, both of which would count before a token of another's."""
    authority = ClusterAuthority(tmp_path / "authority")
    pair = authority.issue("client", "system:admin")
    user = {
        "client-certificate-data": base64.b64encode(pair.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(pair.key.read_bytes()).decode(),
        "token": "configured",
    }
    cluster = {
        "server": "https://127.0.0.1:6443",
        "certificate-authority": str(authority.certificate),
        "tls-server-name": "kubernetes",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return file


async def test_only_the_given_token_goes_along(kubeconfig):
    configured = await open_connection(kubeconfig, None, ConnectionPolicy())
    given = await open_connection_as("of-alice", kubeconfig, ConnectionPolicy())
    try:
        before, after = configured._configuration, given._configuration
        assert before.cert_file
        assert (after.cert_file, after.key_file, after.username, after.password) == (None, None, None, None)
        assert after.refresh_api_key_hook is None
        assert await after.get_api_key_with_prefix("BearerToken") == "Bearer of-alice"
        for name in ("host", "ssl_ca_cert", "tls_server_name", "verify_ssl"):
            assert getattr(after, name) == getattr(before, name)
        await given._load(after)  # as after a 401
        assert await after.get_api_key_with_prefix("BearerToken") == "Bearer of-alice"
    finally:
        await configured.close()
        await given.close()


async def test_without_a_cluster_it_is_refused(tmp_path):
    with pytest.raises(PermanentError, match="kubeconfig"):
        await open_connection_as("of-alice", tmp_path / "none", ConnectionPolicy())


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"server": "not a url"}, "'not a url' is no address of a server: write https://HOST:PORT"),
        ({"server": "127.0.0.1:6443"}, "'127.0.0.1:6443' is no address"),
        ({"certificate-authority-data": "aGVsbG8="}, "a certificate or its key cannot be used"),
    ],
)
async def test_a_cluster_that_cannot_be_asked_is_refused_in_words(kubeconfig, cluster, told):
    """Also one whose certificate is none, which the client library does not notice before it connects."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:6443"} | cluster
    kubeconfig.write_text(yaml.safe_dump(document))
    with pytest.raises(PermanentError, match=told):
        await open_connection(kubeconfig, None, ConnectionPolicy())


async def test_a_token_that_no_header_may_hold_is_refused(kubeconfig):
    """Before anything is sent, and without quoting it."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "sec\nret"}
    kubeconfig.write_text(yaml.safe_dump(document))
    connection = await open_connection(kubeconfig, None, ConnectionPolicy())
    try:
        with pytest.raises(PermanentError, match="line break") as refusal:
            await connection.send(ApiRequest(description="get pods", path="/api/v1/pods"))
        assert "sec" not in str(refusal.value)
    finally:
        await connection.close()
