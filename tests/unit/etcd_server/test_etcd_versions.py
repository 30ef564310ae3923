"""Which etcd servers are good enough, and what a user reads when one is not."""

import pytest

from autoscaler.etcd_server.cache import cache_folder, exclusive
from autoscaler.etcd_server.errors import UnusableEtcdError
from autoscaler.etcd_server.etcd_versions import PINNED, EtcdVersion, try_parse_version
from autoscaler.etcd_server.finder import BinaryOrigin, try_find_etcd


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("3.3.27", False),
        ("3.4.19", False),
        ("3.4.20", True),
        ("3.4.34", True),
        ("3.5.0", False),
        ("3.5.2", False),
        ("3.5.3", True),
        ("3.6.16", True),
        ("4.0.0", True),
    ],
)
def test_versions_that_lose_data_are_told_apart(text, is_good):
    """3.5.0 to 3.5.2 and 3.4 before 3.4.20 are refused."""
    version = try_parse_version(f"etcd Version: {text}\nGit SHA: Not provided\n")
    assert str(version) == text
    assert version.keeps_promises is is_good


def test_output_of_something_else_has_no_version():
    """No guess."""
    assert try_parse_version("nginx version: nginx/1.27") is None


def fake_etcd(path, version):
    """An executable that says what `etcd --version` says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path):
    return {"PATH": str(tmp_path / "bin"), "EDL_CACHE_DIR": str(tmp_path / "cache")}


def test_a_cached_server_that_was_changed_is_not_run(tmp_path, environ):
    """It is run by every `edl run` of its user: one that is not what was built is refused, with what to do."""
    cached = fake_etcd(tmp_path / "cache" / f"etcd-{PINNED}" / "etcd", "3.6.16")
    assert try_find_etcd(environ=environ).path == cached  # of an earlier version: its digest is recorded now
    assert try_find_etcd(environ=environ).path == cached
    witness = tmp_path / "was run"
    cached.write_text(f"#!/bin/sh\ntouch '{witness}'\necho 'etcd Version: 3.6.16'\n")
    with pytest.raises(UnusableEtcdError, match=r"is not what was built.*Remove"):
        try_find_etcd(environ=environ)
    assert not witness.exists()


@pytest.mark.parametrize("open_part", ["file", "folder"])
def test_a_cached_server_that_others_can_write_is_not_run(tmp_path, environ, open_part):
    """A digest beside it would be theirs too."""
    cached = fake_etcd(tmp_path / "cache" / f"etcd-{PINNED}" / "etcd", "3.6.16")
    (cached if open_part == "file" else cached.parent).chmod(0o777)
    with pytest.raises(UnusableEtcdError, match="chmod o-w"):
        try_find_etcd(environ=environ)


def test_named_server_comes_first(tmp_path, environ):
    """`$EDL_ETCD`, then PATH, then the cache."""
    cached = fake_etcd(tmp_path / "cache" / f"etcd-{PINNED}" / "etcd", "3.6.16")
    assert try_find_etcd(environ=environ).path == cached
    on_path = fake_etcd(tmp_path / "bin" / "etcd", "3.4.23")
    assert try_find_etcd(environ=environ).path == on_path
    named = fake_etcd(tmp_path / "named", "3.5.3")
    found = try_find_etcd(environ={**environ, "EDL_ETCD": str(named)})
    assert (found.path, found.version, found.origin) == (named, EtcdVersion(3, 5, 3), BinaryOrigin.NAMED)


def test_server_on_path_that_loses_data_is_passed_over(tmp_path, environ):
    """The cache serves instead, or nothing."""
    fake_etcd(tmp_path / "bin" / "etcd", "3.5.1")
    assert try_find_etcd(environ=environ) is None
    cached = fake_etcd(tmp_path / "cache" / f"etcd-{PINNED}" / "etcd", "3.6.16")
    assert try_find_etcd(environ=environ).path == cached


@pytest.mark.parametrize("version", ["3.5.2", "none"])
def test_named_server_that_is_unusable_is_refused(tmp_path, environ, version):
    """A user who names one wants that one: told what is wrong with it, and what would do."""
    named = fake_etcd(tmp_path / "named", version)
    with pytest.raises(UnusableEtcdError, match=r"3\.5\.3"):
        try_find_etcd(environ={**environ, "EDL_ETCD": str(named)})
    with pytest.raises(UnusableEtcdError, match="cannot be run"):
        try_find_etcd(environ={**environ, "EDL_ETCD": str(tmp_path / "absent")})


def test_cache_folder_follows_the_environment(tmp_path):
    """EDL_CACHE_DIR, then XDG_CACHE_HOME, then the home folder."""
    assert cache_folder({"EDL_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}).as_posix() == "/a"
    assert cache_folder({"XDG_CACHE_HOME": "/b"}).as_posix() == "/b/edl"
    assert cache_folder({}).as_posix().endswith("/.cache/edl")


def test_a_cache_that_cannot_be_written_is_refused_with_the_way_out(tmp_path):
    """An unwritable HOME, say; here a file stands where the folder should."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableEtcdError, match="EDL_CACHE_DIR"), exclusive(tmp_path / "file" / "edl", print):
        pass
