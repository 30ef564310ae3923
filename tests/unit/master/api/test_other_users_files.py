"""What other users could have put in our way is refused before it is used (ADR 0170)."""

import os
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from autoscaler.clusters.local.run_files.run_folder import RunFolderError, make_run_folder
from master.api.host.file_ownership import ForeignUserError, check_file, check_path, check_private
from master.api.host.unix_sockets import (
    LONGEST_NAME_BYTES,
    LONGEST_PATH_BYTES,
    check_peer,
    has_listener,
    make_socket_folder,
    peer_user,
    socket_path,
    temporary_parent,
)

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SECURITY NOT TESTED: only root can give files away")


def test_a_folder_that_everybody_may_write_to_is_no_place_for_a_run(tmp_path):
    """Anybody could rename what is in it and put something else there; with the sticky bit nobody can."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for path in (shared, shared / "runs", shared / "runs" / "deeper"):
        with pytest.raises(ForeignUserError, match=rf"every user may write to {shared}"):
            check_path(path)
    with pytest.raises(RunFolderError, match="chmod o-w"):
        make_run_folder(shared / "runs", "job", described={})
    assert list(shared.iterdir()) == []
    shared.chmod(0o1777)
    assert make_run_folder(shared / "runs", "job", described={}).root.is_dir()


@needs_root
@pytest.mark.parametrize("planted", ["folder", "link"])
def test_what_another_user_made_in_a_shared_folder_is_not_used(tmp_path, planted):
    """`runs` in /tmp may be a stranger's, or a stranger's link to anywhere."""
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    shared.mkdir()
    shared.chmod(0o1777)
    elsewhere.mkdir()
    runs = shared / "runs"
    if planted == "link":
        runs.symlink_to(elsewhere)
    else:
        runs.mkdir()
    os.chown(runs, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(RunFolderError, match=f"belongs to user {NOBODY}"):
        make_run_folder(runs, "job", described={})
    assert list(elsewhere.iterdir()) == []


def test_a_link_of_ones_own_is_followed_to_a_place_that_is_looked_at_too(tmp_path):
    """~/runs may well be a link to a larger disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    check_path(tmp_path / "runs" / "x")
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(ForeignUserError, match="every user may write to"):
        check_path(tmp_path / "runs" / "x")


@needs_root
def test_a_private_folder_is_ours_closed_and_no_link(tmp_path):
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    check_private(folder)
    folder.chmod(0o750)
    with pytest.raises(ForeignUserError, match="chmod 700"):
        check_private(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ForeignUserError, match="symbolic link"):
        check_private(tmp_path / "link")
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(ForeignUserError, match=f"belongs to user {NOBODY}"):
        check_private(folder)
    with pytest.raises(ForeignUserError, match="can be written by other users"):
        check_file(folder)


def test_a_place_that_everybody_may_write_to_is_left_for_a_safe_one(tmp_path, caplog):
    """A stranger could have moved the private folder away, and got the secret that was written to its path next."""
    shared, sticky, private = (tmp_path / name for name in ("scratch", "tmp", "mine"))
    for folder, mode in ((shared, 0o777), (sticky, 0o1777), (private, 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    assert temporary_parent([str(private), str(sticky)]) == str(private)
    assert temporary_parent([str(shared), str(tmp_path / "none"), str(sticky)]) == str(sticky)
    assert caplog.text == ""
    assert temporary_parent([str(shared)]) == str(shared)  # a container's only place, perhaps
    assert "every user may write there" in caplog.text


@pytest.mark.parametrize("depth", [0, 100, 300])
def test_a_folder_for_sockets_takes_their_names_however_deep_it_was_wanted(tmp_path, depth):
    """AF_UNIX takes 103 bytes on every system; it is private wherever it is."""
    deep = tmp_path / ("d" * min(depth, 200)) / ("e" * max(0, depth - 200))
    deep.mkdir(parents=True, exist_ok=True)
    folder = make_socket_folder(deep / "s")
    check_private(folder)
    assert len(os.fsencode(folder / ("n" * LONGEST_NAME_BYTES))) <= LONGEST_PATH_BYTES
    if folder.parent != deep:
        folder.rmdir()


@pytest.mark.parametrize("odd", ["with space", "with,comma", "with%25", "with#mark"])
def test_a_folder_whose_name_means_something_to_grpc_is_not_used(tmp_path, odd):
    """An address is a URI there, and a list of them has commas."""
    (tmp_path / odd).mkdir()
    folder = make_socket_folder(tmp_path / odd / "s")
    assert folder.parent != tmp_path / odd
    folder.rmdir()


@pytest.mark.parametrize("address", ["unix:relative", "unix:/a\0b", "unix:/" + "x" * 200, "unix:"])
def test_an_address_that_is_no_socket_is_refused(address):
    with pytest.raises(ValueError, match="unix:"):
        socket_path(address)


@needs_root
def test_the_kernel_says_who_the_peer_is():
    """A second line: where a folder was opened by mistake, another user is still sent away."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0edl-test-{os.getpid()}")  # which everybody may connect to
    listening.listen()
    program = (
        "import os, socket, sys\n"
        f"os.setuid({NOBODY})\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        f"s.connect('\\0edl-test-{os.getpid()}')\n"
        "s.recv(1)\n"
    )
    with listening, subprocess.Popen([sys.executable, "-I", "-c", program]) as stranger:
        accepted, _ = listening.accept()
        with accepted:
            assert peer_user(accepted) == NOBODY
            with pytest.raises(ForeignUserError, match=f"user {NOBODY}"):
                check_peer(accepted)
        assert stranger.wait(60) == 0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        check_peer(ours)


def test_a_socket_whose_process_takes_no_more_connections_is_taken(tmp_path):
    """A master that is stopped keeps its place; what a killed one left behind is free."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(0)
        assert has_listener(path)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        try:
            for one in waiting:
                one.setblocking(False)
                with suppress(BlockingIOError):
                    one.connect(str(path))
            assert has_listener(path)
        finally:
            for one in waiting:
                one.close()
    assert path.exists()
    assert not has_listener(path)
    assert not has_listener(tmp_path / "never")
