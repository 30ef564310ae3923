"""`edl why`, `plan`, `what-if` and `snapshot save` as users have them: of a live run, and of the file that it saved."""

import json
import re
import subprocess

import pytest

from tests.harness.edl_command import DEADLINE_S, EDL, FILES, EdlRun, edl, ready_trainers, wait_until


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two nodes of two cpus; one job of at most three trainers, one web pod."""
    folder = tmp_path_factory.mktemp("planning")
    started = EdlRun(folder, "--stay")
    edl("wait", "--for=condition=Available", "deployment/web", "--timeout", "100s", run=started.folder)
    wait_until(lambda: ready_trainers(started.folder, "idle") == 2, "growth into free room")
    yield started
    started.end()


@pytest.fixture(scope="module")
def saved(run):
    target = run.folder.parent.parent / "snapshot.json"
    assert edl("snapshot", "save", "-o", str(target), run=run.folder) == f"{target}\n"
    return target


def test_why_names_what_is_lacking_and_what_would_do(run, saved):
    """The same answers live and from the file."""
    for source in ([], ["--snapshot", str(saved)]):
        where = {} if source else {"run": run.folder}
        told = edl("why", "tj/idle", *source, **where)
        assert "tj/idle has 2 trainers (1 to 3 allowed)" in told
        assert "1 more: 3    1 cpu more on node-" in told
        assert "another node like node-" in told
        content = json.loads(edl("why", "tj", "idle", "-o", "json", *source, **where))
        assert content["decision"]["bottleneck"] == "NodeFit"
        assert {answer["size"] for answer in content["answers"]} == {3}


def test_why_of_a_job_that_has_ended_says_so(tmp_path):
    """How, when and why, instead of that there is none."""
    fails = FILES.replace("[python, IDLE]", "['false']").replace("spec:", "spec:\n  runPolicy: {backoffLimit: 1}", 1)
    run = EdlRun(tmp_path, "--stay", files=fails)
    try:
        edl("wait", "--for=condition=Failed", "tj/idle", "--timeout", "100s", run=run.folder)
        told = edl("why", "tj/idle", run=run.folder, code=3)
    finally:
        run.end()
    assert re.search(r"tj/idle has no size any more: Failed \w+ ago: 1 trainer failure without one batch", told)
    assert "see edl describe tj/idle" in told


def test_questions_to_a_live_run_change_nothing(run):
    """A dry run, and what would be with more nodes."""
    assert "idle  1    2    2       3    -          Kept" in edl("plan", run=run.folder)
    more = edl("what-if", "--add-nodes", "2", "--shape", "4cpu,8Gi", run=run.folder)
    assert "tj/idle         2    2       3      at maxReplicas 3" in more
    assert run.get("tj/idle")["status"]["trainers"]["ready"] == 2


def test_a_saved_moment_is_one_file_without_secrets(run, saved):
    """No command, no secret; to standard output it is the same, and from standard input it is read."""
    text = edl("snapshot", "save", "-o", "-", run=run.folder)
    secrets = [file.read_text().strip() for file in (run.folder / "tokens").glob("*/token")]
    assert secrets
    for found in (text, saved.read_text()):
        assert json.loads(found)["kind"] == "ClusterSnapshot"
        assert "idle.py" not in found
        assert not any(secret in found for secret in secrets)
    piped = subprocess.run(
        [EDL, "plan", "--snapshot", "-"], input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert "idle" in piped.stdout
