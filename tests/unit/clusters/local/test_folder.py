"""The run folder: what it holds, who may read it, and how a run is found."""

import json
from pathlib import Path

import pytest

from autoscaler.cli.arguments.place_selection import find_run
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.machine.pod_logs import describe_exit, read_tail
from autoscaler.clusters.local.run_files.run_folder import (
    RUN_FORMAT,
    RunFolder,
    RunFolderError,
    find_runs,
    make_run_folder,
)
from autoscaler.clusters.local.run_files.run_journal import RunJournal


def test_a_run_folder_is_its_owners_alone(tmp_path):
    """It holds secrets."""
    folder = make_run_folder(tmp_path / "runs", "My Job!", described={"name": "x"})
    assert folder.root.name.endswith("-my-job")
    assert folder.root.stat().st_mode & 0o777 == 0o700
    assert folder.tokens.stat().st_mode & 0o777 == 0o700
    assert folder.sockets.stat().st_mode & 0o777 == 0o700
    assert folder.read_manifest() == {"format": RUN_FORMAT, "name": "x"}


def test_runs_of_one_second_do_not_meet(tmp_path):
    """Each has a folder of its own; the newest is found first."""
    folders = [make_run_folder(tmp_path, "job", described={}) for _ in range(3)]
    assert len({folder.root for folder in folders}) == 3
    assert {folder.root for folder in find_runs(tmp_path)} == {folder.root for folder in folders}


def test_a_run_of_a_newer_version_is_refused(tmp_path):
    """With both versions."""
    folder = RunFolder(root=tmp_path)
    folder.manifest.write_text(json.dumps({"format": RUN_FORMAT + 1}))
    with pytest.raises(ValueError, match="reads up to"):
        folder.read_manifest()


def test_a_folder_that_is_no_run_is_not_found(tmp_path, monkeypatch):
    """Exit code 3, with what to do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDL_RUN", raising=False)
    for chosen in (tmp_path, None):
        with pytest.raises(CommandError) as caught:
            find_run(chosen)
        assert caught.value.code is Exit.NOT_FOUND


def test_a_run_that_has_ended_is_named(tmp_path, monkeypatch):
    """Who types a command too late learns where logs and checkpoints are; the newest of several."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDL_RUN", raising=False)
    ended = [make_run_folder(Path("runs"), "job", described={"ended": "2026-01-02"}) for _ in range(2)]
    with pytest.raises(CommandError, match=rf"below \./runs \(runs/{ended[-1].root.name} is over; its logs"):
        find_run(None)


def test_events_are_on_disk_when_they_are_told(tmp_path):
    """One JSON object a line, numbered, in seconds since the start."""
    folder = make_run_folder(tmp_path, "job", described={})
    times = iter([100.0, 101.5, 102.25])
    told = []
    with RunJournal(folder, clock=lambda: next(times)) as recorder:
        recorder.on_event.append(told.append)
        recorder.record_event("Started", "pod/a", "Started", "pid 1")
        (line,) = [json.loads(line) for line in folder.events.read_text().splitlines()]
        assert line == {
            "number": 1, "t_s": 1.5, "kind": "Started", "object": "pod/a", "reason": "Started", "message": "pid 1",
        }  # fmt: skip
        recorder.record_sample({"jobs": {}})
    assert json.loads(folder.samples.read_text()) == {"t_s": 2.25, "jobs": {}}
    assert [event.number for event in told] == [1]


def test_the_last_words_are_those_of_this_process(tmp_path):
    """Not those of the one before it in the same log; bounded."""
    log = tmp_path / "pod.log"
    log.write_text("old\n")
    offset = log.stat().st_size
    with log.open("a") as file:
        file.write("\n".join(f"line {n}" for n in range(1000)) + "\n" + "x" * 10_000)
    tail = read_tail(log, offset)
    assert "old" not in tail
    assert len(tail) < 4000
    assert read_tail(log, log.stat().st_size) == "; it wrote nothing"


def test_exits_in_words():
    """Codes and signals."""
    assert [describe_exit(code) for code in (0, 3, -9)] == ["exited with 0", "exited with 3", "was killed by SIGKILL"]


def test_a_full_disk_costs_lines_and_never_the_run(tmp_path, caplog):
    """Whoever watches is still told; the loss is said once."""
    folder = make_run_folder(tmp_path, "job", described={})
    folder.events.symlink_to("/dev/full")
    told = []
    with RunJournal(folder, clock=lambda: 0.0) as recorder:
        recorder.on_event.append(told.append)
        recorder.record_event("Started", "pod/a", "Started", "pid 1")
        recorder.record_event("Started", "pod/b", "Started", "pid 2")
        recorder.record_sample({"n": 1})
    assert [event.object for event in told] == ["pod/a", "pod/b"]
    assert [record.getMessage().count("No space left") for record in caplog.records] == [1]
    assert json.loads(folder.samples.read_text()) == {"t_s": 0.0, "n": 1}


def test_a_place_that_takes_no_folder_is_refused_with_its_name(tmp_path):
    """Root ignores modes, so a file stands in the way."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match=r"runs: Not a directory; see --run-dir"):
        make_run_folder(tmp_path / "runs", "job", described={})
