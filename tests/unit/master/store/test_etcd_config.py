"""Endpoints, users and certificates from the environment."""

import pytest

from master.errors import InvalidSettingError
from master.store.etcd.etcd_config import EtcdConfig, grpc_target
from master.store.job_keys import JobKeys


def test_no_endpoints_means_no_etcd():
    """The caller takes the store in memory then."""
    assert EtcdConfig.try_from_environment({}) is None
    assert EtcdConfig.try_from_environment({"EDL_ETCD_ENDPOINTS": " "}) is None


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("127.0.0.1:2379", ("127.0.0.1:2379",)),
        ("etcd-0.etcd, etcd-1.etcd:2380", ("etcd-0.etcd:2379", "etcd-1.etcd:2380")),
        ("http://h1:1,http://h2:2/,http://h1:1", ("h1:1", "h2:2")),
        ("[::1]:2379,http://[fd00::2]:1", ("[::1]:2379", "[fd00::2]:1")),
    ],
)
def test_endpoints_are_host_and_port(text, endpoints):
    """Scheme and port may be left out; one member counts once."""
    config = EtcdConfig.try_from_environment({"EDL_ETCD_ENDPOINTS": text})
    assert config.endpoints == endpoints
    assert config.tls is None


@pytest.mark.parametrize(
    "text", ["http://", "h1:2379,", "h1:port", "ftp://h1", "http://h1,https://h2", "h1:2379/path", "http://u:pw@h1:1"]
)
def test_bad_endpoints_are_refused_by_name(text):
    """The variable is named, and a password that stands there is not repeated."""
    with pytest.raises(InvalidSettingError) as refusal:
        EtcdConfig.try_from_environment({"EDL_ETCD_ENDPOINTS": text})
    assert refusal.value.path == "EDL_ETCD_ENDPOINTS"
    assert "pw" not in str(refusal.value)


def test_user_and_certificates_come_from_files(tmp_path):
    """And the password shows in no repr."""
    for name in ("password", "ca", "cert", "key"):
        (tmp_path / name).write_text(f"the {name}\n")
    config = EtcdConfig.try_from_environment(
        {
            "EDL_ETCD_ENDPOINTS": "https://h1",
            "EDL_ETCD_USER": "edl",
            "EDL_ETCD_PASSWORD_FILE": str(tmp_path / "password"),
            "EDL_ETCD_CA_FILE": str(tmp_path / "ca"),
            "EDL_ETCD_CERT_FILE": str(tmp_path / "cert"),
            "EDL_ETCD_KEY_FILE": str(tmp_path / "key"),
        }
    )
    assert config.credentials.password == "the password"
    assert config.tls.ca == b"the ca\n"
    assert "the password" not in repr(config)
    assert "the key" not in repr(config)


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ({"EDL_ETCD_USER": "edl"}, "EDL_ETCD_PASSWORD_FILE"),
        ({"EDL_ETCD_PASSWORD_FILE": "/dev/null"}, "EDL_ETCD_USER"),
        ({"EDL_ETCD_CERT_FILE": "/dev/null"}, "EDL_ETCD_KEY_FILE"),
        ({"EDL_ETCD_CA_FILE": "/absent"}, "EDL_ETCD_CA_FILE"),
        ({"EDL_ETCD_ENDPOINTS": "http://h1", "EDL_ETCD_CA_FILE": "/dev/null"}, "EDL_ETCD_ENDPOINTS"),
    ],
)
def test_half_a_setting_is_refused_by_the_missing_name(extra, path):
    """The message names what is missing."""
    with pytest.raises(InvalidSettingError) as refusal:
        EtcdConfig.try_from_environment({"EDL_ETCD_ENDPOINTS": "h1", **extra})
    assert refusal.value.path == path


def test_targets_name_addresses_and_resolve_names():
    """A name is resolved again at each connection: pods move."""
    assert grpc_target("127.0.0.1:1") == "ipv4:127.0.0.1:1"
    assert grpc_target("[::1]:1") == "ipv6:[::1]:1"
    assert grpc_target("etcd.ns.svc:1") == "dns:///etcd.ns.svc:1"


@pytest.mark.parametrize("job", ["", "Digits", "a/b", "-a", "a" * 254])
def test_job_that_is_no_name_is_refused(job):
    """A slash would lead into another job's keys."""
    with pytest.raises(InvalidSettingError):
        JobKeys(job)
