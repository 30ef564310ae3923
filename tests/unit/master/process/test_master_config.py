"""The environment is parsed once; a wrong value is refused by the variable's name, before anything starts."""

import pytest

from master.api.identities import WhenUnreadable
from master.errors import InvalidSettingError
from master.job.domain.durable_records import SECOND
from master.job.domain.job_config import AfterLoss, JobConfig
from master.leadership.election_state import LeadershipTiming
from master.process.master_config import ListenAddress, Settings, parse_address
from trainer_sdk.environment import parse_environment
from trainer_sdk.errors import UsageError

LEAST = {"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": "/ck"}


def test_the_least_environment_has_defaults_for_the_rest():
    """A job's name and a folder are all that a script alone has to say."""
    settings = Settings.from_environment(LEAST)
    assert (settings.job, settings.name, settings.listen) == (
        "digits",
        "digits-master-0",
        ListenAddress(host="127.0.0.1", port=0),
    )
    assert settings.etcd is None
    assert settings.config.checkpoint_every_ns == 60 * SECOND
    assert settings.config.after_loss is AfterLoss.ROLL_BACK
    assert not settings.token
    assert not settings.has_standbys


def test_what_is_not_said_is_as_the_master_has_it():
    """The variables have no defaults of their own beside those of the parts that they set."""
    settings = Settings.from_environment(LEAST)
    assert settings.config == JobConfig(servers=0)
    assert settings.timing == LeadershipTiming()


def test_when_unreadable_is_one_list_for_a_master_and_a_script():
    """A script that runs alone hands the value on to the master that it starts: what one takes the other takes."""
    for way in ("", *WhenUnreadable):
        told = {"EDL_WHEN_UNREADABLE": way}
        falls_back = parse_environment(told).when_unreadable is WhenUnreadable.FALL_BACK
        assert Settings.from_environment({**LEAST, **told}).config.falls_back == falls_back == (way == "FallBack")
    with pytest.raises(UsageError, match="EDL_WHEN_UNREADABLE: 'fallback' is not one of Fail, FallBack"):
        parse_environment({"EDL_WHEN_UNREADABLE": "fallback"})
    with pytest.raises(InvalidSettingError, match="EDL_WHEN_UNREADABLE: 'fallback' is not one of Fail, FallBack"):
        Settings.from_environment({**LEAST, "EDL_WHEN_UNREADABLE": "fallback"})


def test_a_socket_is_listened_on_by_the_address_that_was_told(tmp_path):
    """As gRPC reads it."""
    settings = Settings.from_environment({**LEAST, "EDL_LISTEN": f"unix:{tmp_path}/m.sock"})
    assert str(settings.listen) == f"unix:{tmp_path}/m.sock"


def test_everything_can_be_said(tmp_path):
    """Each variable reaches its setting."""
    (tmp_path / "token").write_text("s3cret\n")
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text(name)
    settings = Settings.from_environment(
        {
            **LEAST,
            "EDL_ENV_VERSION": "1",
            "EDL_NAME": "digits-master-1",
            "EDL_LISTEN": "[::1]:7164",
            "EDL_METRICS_LISTEN": "0.0.0.0:9100",
            "EDL_ADDRESS_FILE": str(tmp_path / "address"),
            "EDL_CHECKPOINT_EVERY_S": "0.5",
            "EDL_SERVERS": "2",
            "EDL_MAX_SERVERS": "5",
            "EDL_AFTER_LOSS": "Keep",
            "EDL_BUCKETS": "16",
            "EDL_BACKOFF_LIMIT": "0",
            "EDL_MASTERS": "2",
            "EDL_LEADER_TTL_S": "3",
            "EDL_ETCD_ENDPOINTS": "http://127.0.0.1:2379",
            "EDL_TOKEN_FILE": str(tmp_path / "token"),
            "EDL_TLS_DIR": str(tmp_path),
            "EDL_PARENT_PID": "42",
            "EDL_CHECK_INVARIANTS": "1",
        }
    )
    assert str(settings.listen) == "[::1]:7164"
    assert (settings.config.servers, settings.config.bucket_count, settings.config.backoff_limit) == (2, 16, 0)
    assert (settings.config.most_servers, settings.config.after_loss) == (5, AfterLoss.KEEP)
    assert settings.config.checkpoint_every_ns == SECOND // 2
    assert (settings.timing.lease_ttl_s, settings.timing.renew_deadline_s) == (3, 2.0)
    assert settings.etcd.endpoints == ("127.0.0.1:2379",)
    assert (settings.token, settings.tls.key, settings.parent_pid) == ("s3cret", b"tls.key", 42)
    assert settings.has_standbys
    assert settings.checks_invariants
    assert "s3cret" not in repr(settings)
    assert "tls.key" not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EDL_ENV_VERSION", "2"),
        ("EDL_JOB", ""),
        ("EDL_JOB", "Digits!"),
        ("EDL_CHECKPOINT_URI", ""),
        ("EDL_LISTEN", "7164"),
        ("EDL_LISTEN", "host:99999"),
        ("EDL_LISTEN", ":80"),
        ("EDL_METRICS_LISTEN", "host:port"),
        ("EDL_CHECKPOINT_EVERY_S", "often"),
        ("EDL_CHECKPOINT_EVERY_S", "0"),
        ("EDL_CHECKPOINT_EVERY_S", "nan"),
        ("EDL_SERVERS", "-1"),
        ("EDL_SERVERS", "two"),
        ("EDL_AFTER_LOSS", "keep"),
        ("EDL_BUCKETS", "0"),
        ("EDL_BUCKETS", "4097"),
        ("EDL_BUCKETS", "2147483648"),
        ("EDL_SERVERS", "9" * 5000),
        ("EDL_BACKOFF_LIMIT", "1.5"),
        ("EDL_LEADER_TTL_S", "1"),
        ("EDL_ETCD_ENDPOINTS", "ftp://x"),
        ("EDL_TOKEN_FILE", "/nowhere/token"),
        ("EDL_TLS_DIR", "/nowhere"),
        ("EDL_PARENT_PID", "me"),
    ],
)
def test_a_wrong_value_is_refused_by_name(variable, value):
    """The message names the variable and says what to write."""
    with pytest.raises(InvalidSettingError) as caught:
        Settings.from_environment({**LEAST, variable: value})
    assert caught.value.path == variable
    assert variable in str(caught.value)


def test_addresses_print_as_they_are_written():
    """What is announced can be dialled."""
    for text in ("127.0.0.1:80", "[::1]:80", "master.svc:7164"):
        assert str(parse_address("X", text)) == text


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_token_file_without_a_secret_is_refused(tmp_path, content):
    """An empty secret would let everybody in, while the user believes that there is one."""
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(InvalidSettingError, match="EDL_TOKEN_FILE: holds no secret"):
        Settings.from_environment({**LEAST, "EDL_TOKEN_FILE": str(tmp_path / "token")})


def test_an_unknown_log_level_is_refused():
    """By its name, before logging is set up with it."""
    with pytest.raises(InvalidSettingError, match="EDL_LOG_LEVEL: 'loud' is not a level"):
        Settings.from_environment({**LEAST, "EDL_LOG_LEVEL": "loud"})


def test_without_a_most_there_may_be_as_many_servers_as_the_job_begins_with():
    assert Settings.from_environment({**LEAST, "EDL_SERVERS": "2"}).config.most_servers == 2
    assert Settings.from_environment(LEAST).config.most_servers == 0


@pytest.mark.parametrize("servers", [{"EDL_SERVERS": "3", "EDL_MAX_SERVERS": "2"}, {"EDL_MAX_SERVERS": "2"}])
def test_a_most_that_cannot_be_is_refused_by_name(servers):
    """Below what the job begins with, or of a job without servers."""
    with pytest.raises(InvalidSettingError, match="EDL_MAX_SERVERS"):
        Settings.from_environment({**LEAST, **servers})


def test_a_group_has_no_parameter_servers():
    assert Settings.from_environment({**LEAST, "EDL_GROUP": "1"}).is_group
    assert not Settings.from_environment(LEAST).is_group
    with pytest.raises(InvalidSettingError, match="EDL_GROUP: is 1, but EDL_SERVERS"):
        Settings.from_environment({**LEAST, "EDL_GROUP": "1", "EDL_SERVERS": "1"})
