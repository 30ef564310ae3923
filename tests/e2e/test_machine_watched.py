"""What would be noticed if a run changed the machine.  Needs no root."""

import os
import subprocess
import sys

import pytest

from tests.e2e import __main__ as command
from tests.e2e import prerequisites
from tests.e2e.machine import differences
from tests.e2e.prerequisites import missing


def test_each_change_is_named_with_what_was_and_what_is():
    before = {"/proc/sys/vm/overcommit_memory": "0", "/var": "lib log", "/run/anothers": "there"}
    after = {"/proc/sys/vm/overcommit_memory": "1", "/var": "lib log", "new": "1"}
    assert differences(before, after) == [
        "/proc/sys/vm/overcommit_memory: was '0', is '1'",
        "new: was None, is '1'",
    ]
    assert differences(before, dict(before)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere that is the one thing that is said")
def test_all_that_a_machine_lacks_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(prerequisites.os, "geteuid", lambda: 1000)
    said = missing(tmp_path, {"PATH": str(tmp_path)})
    assert "sudo make e2e" in said[0]
    assert all(program in said[1] for program in prerequisites.PROGRAMS)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere that is the one thing that is said")
def test_without_rights_the_command_says_what_it_needs_and_touches_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(prerequisites.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("EDL_CACHE_DIR", str(tmp_path / "cache"))
    assert command.main([]) == command.CANNOT_RUN
    assert "cannot run here: root is needed" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_what_a_killed_run_left_is_removed_and_what_a_live_one_needs_is_not(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for run in (f"{os.getpid()}-ab12", f"{dead.pid}-cd34"):
        (tmp_path / run).mkdir()
    command.remove_stale(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == [f"{os.getpid()}-ab12"]
