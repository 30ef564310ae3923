"""Temporary folders of scripts that run alone: a killed script's goes with the next start, a live one's never."""

import fcntl
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from master.api.checkpoints.folder_contents import HEAD
from tests.harness.lone_script import environment_alone, run_alone
from tests.harness.waiting import wait_for
from trainer_sdk.runtime.script_folders import CHECKPOINTS, OWNER, hold_folder, remove_folder, remove_left_over

TRAINS = """
import sys
import trainer_sdk as edl
with edl.open() as session:
    for batch in session.dataset("d", size=10, epochs=1, batch_size=2):
        batch.done()
        if sys.argv[1:]:
            print("trains", flush=True)
            sys.stdin.read()
"""


@contextmanager
def training_script(tmp_path):
    """A script that trains until its standard input is closed."""
    command, pipe = [sys.executable, "-c", TRAINS, "waits"], subprocess.PIPE
    with subprocess.Popen(command, env=environment_alone(tmp_path), stdin=pipe, stdout=pipe) as script:
        try:
            assert script.stdout.readline() == b"trains\n"
            yield script
        finally:
            script.kill()


@pytest.fixture
def left_over(tmp_path):
    """As a killed script leaves its folder."""
    folder = make_folder(tmp_path / "edl-left")
    os.close(hold_folder(folder))
    return folder


def make_folder(folder):
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "part").write_text("kept")
    return folder


def is_held(folder):
    with (folder / OWNER).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_folder_of_a_killed_script_goes_with_the_next_start(tmp_path):
    """After SIGKILL, once its master has ended too; a script that trains meanwhile keeps its folder."""
    with training_script(tmp_path) as killed:
        (left,) = tmp_path.glob("edl-*")
        with training_script(tmp_path) as living:
            (lives,) = set(tmp_path.glob("edl-*")) - {left}
            killed.kill()
            wait_for("the end of the killed script's master", lambda: not is_held(left))
            done = run_alone(tmp_path, "-c", TRAINS)

            assert done.returncode == 0, done.stderr
            assert list(tmp_path.glob("edl-*")) == [lives]
            living.communicate()
            assert living.returncode == 0
    assert list(tmp_path.glob("edl-*")) == []


def test_a_folder_is_in_use_while_a_child_has_its_lock(tmp_path):
    """The master of a killed script still writes there until it has noticed."""
    folder = make_folder(tmp_path / "edl-child")
    hold = hold_folder(folder)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[hold]) as child:
        os.close(hold)
        remove_left_over(tmp_path)
        assert (folder / "checkpoints" / "part").exists()
        child.communicate()
    remove_left_over(tmp_path)

    assert not folder.exists()


@pytest.mark.parametrize("days", [6, 8])
def test_a_checkpoint_stays_for_a_week(left_over, days):
    """It may be all that is left of the work of a script that the system killed for its memory."""
    head = left_over / CHECKPOINTS / HEAD
    head.write_text("the last")
    written_s = time.time() - days * 86_400
    os.utime(head, (written_s, written_s))
    remove_left_over(left_over.parent)

    assert head.exists() == (days < 7)


def test_only_folders_of_scripts_are_removed(tmp_path, left_over):
    """Not another program's, not what a link leads to, and nothing that a link in a left-over folder leads to."""
    mine, theirs = make_folder(tmp_path / "mine"), make_folder(tmp_path / "edl-theirs")
    os.close(hold_folder(mine))
    (tmp_path / "edl-link").symlink_to(mine)
    (left_over / "link").symlink_to(theirs)
    linked = make_folder(tmp_path / "edl-linked")
    (linked / OWNER).symlink_to(mine / OWNER)
    remove_left_over(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["edl-link", "edl-linked", "edl-theirs", "mine"]
    assert (mine / "checkpoints" / "part").exists()
    assert (theirs / "checkpoints" / "part").exists()


def test_nothing_is_removed_where_others_could_replace_a_folder(tmp_path, left_over):
    """A folder that everybody may write to, without the sticky bit."""
    tmp_path.chmod(0o777)
    remove_left_over(tmp_path)

    assert left_over.exists()


def test_a_sweep_ends_at_its_limit(tmp_path, left_over):
    """A start does not wait for thousands of folders."""
    remove_left_over(tmp_path, limit_s=-1.0)

    assert left_over.exists()


def test_a_script_removes_its_own_folder(tmp_path):
    """While it holds the lock."""
    folder = make_folder(tmp_path / "edl-own")
    hold = hold_folder(folder)
    remove_folder(folder)
    os.close(hold)

    assert not folder.exists()
