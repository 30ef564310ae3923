"""What users get wrong on the command line is answered with what to do, and the documented exit code."""

import os
import signal
import socket
import subprocess

import pytest

from tests.harness.edl_command import DEADLINE_S, EDL, FILES, PROGRAMS, EdlRun, edl


@pytest.fixture
def run(tmp_path):
    started = EdlRun(tmp_path, "--stay")
    yield started
    started.end()


def shell(line, cwd, **environment):
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_wrong_words_are_answered_with_the_right_ones(run, tmp_path):
    """Nothing is changed, and nobody is told that it was."""
    asked = [
        (("get", "foo"), 2, "known here: tj, node, pod, deployment"),
        (("scale", "deployment/web", "--trainers", "3"), 2, "--replicas N"),
        (("scale", "tj/idle", "--replicas", "3"), 2, "--trainers N"),
        (("scale", "deployment/wbe", "--replicas", "3"), 3, "did you mean web?"),
        (("drain", "deployment/web"), 2, "scaled, not drained"),
        (("uncordon", "tj/idle"), 2, "node/NAME"),
        (("suspend", "deployment/web"), 2, "tj/NAME"),
        (("wait", "--for=condition=Done", "tj/idle"), 2, "Completed"),
    ]
    for words, code, answer in asked:
        assert answer in edl(*words, run=run.folder, code=code), words
    text = edl("describe", "tj/idle", run=run.folder)
    assert "1 to 3 allowed" in text
    assert "Why:" in text.partition("Pods:")[0]

    offered = shell(EDL, tmp_path, _EDL_COMPLETE="bash_complete", COMP_WORDS="edl get tj/", COMP_CWORD="2")
    assert "tj/idle" in offered.stdout


def test_a_port_for_metrics_that_is_taken_is_told_before_anything_starts(tmp_path):
    """By the option's name, with what to do; the run's folder holds no pod's log."""
    (tmp_path / "job.yaml").write_text(FILES.replace("IDLE", str(PROGRAMS / "idle.py")).replace("WEB", "web.py"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell(f"{EDL} run job.yaml --no-view --no-etcd --metrics 127.0.0.1:{port}", tmp_path)
    assert done.returncode not in {0, 2}
    assert f"--metrics 127.0.0.1:{port}" in done.stderr
    assert "name another port" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.glob("runs/*/logs/idle-*")) == []


def test_a_reader_that_has_gone_is_no_error(run):
    """As with `edl events | head`: no traceback, exit 0."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [EDL, "events", "--run", str(run.folder)],
            stdout=writes,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_leaves_stops_the_run_in_order(tmp_path):
    """`edl run ... | head` ends as with Ctrl-C: no traceback, no process, run.json is finished."""
    text = FILES.replace("IDLE", str(PROGRAMS / "idle.py")).replace("WEB", str(PROGRAMS / "web.py"))
    (tmp_path / "job.yaml").write_text(text)
    done = shell(f"{EDL} run job.yaml --no-etcd | head -2", tmp_path)
    assert done.returncode == 130
    assert done.stderr == ""
    (manifest,) = tmp_path.glob("runs/*/run.json")
    assert '"ended"' in manifest.read_text()


@pytest.mark.parametrize(
    ("options", "code", "answer"),
    [
        (("--run-dir", "job.yaml"), 4, "no run folder can be made in job.yaml: Not a directory"),
        (("--cluster", "job.yaml"), 4, "a LocalCluster document belongs there"),
        (("--memory", "8GB"), 4, "--memory: '8GB' is no quantity"),
    ],
)
def test_a_run_that_cannot_start_says_why(tmp_path, options, code, answer):
    """One line and an exit code, never a traceback."""
    (tmp_path / "job.yaml").write_text(FILES)
    words = ("job.yaml",) if options[0] != "--cluster" else ("web.yaml",)
    (tmp_path / "web.yaml").write_text(FILES.partition("---")[2])
    done = subprocess.run(
        [EDL, "run", *words, *options], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == code
    assert answer in done.stderr
    assert "Traceback" not in done.stderr


def test_an_etcd_that_is_none_is_refused(tmp_path):
    """The value is wrong, so the code is that of a refusal; the message names the variable."""
    (tmp_path / "job.yaml").write_text(FILES)
    done = shell(f"{EDL} run job.yaml", tmp_path, EDL_ETCD="/no/such/etcd")
    assert done.returncode == 4
    assert "/no/such/etcd (EDL_ETCD) cannot be run" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("is_live", [True, False])
def test_a_terminal_without_unicode_is_shown_what_it_can_show(tmp_path, is_live):
    """Live view or lines: characters that the terminal lacks are replaced, and nothing stops."""
    place = tmp_path / "ü"
    place.mkdir()
    programs = FILES.replace("IDLE", str(PROGRAMS / "idle.py")).replace("WEB", str(PROGRAMS / "web.py"))
    (place / "job.yaml").write_text(programs)
    options = "--no-etcd --duration 8s" + ("" if is_live else " --no-view")
    line = f"{EDL} run job.yaml {options}"
    done = shell(
        f"script -qec '{line}' /dev/null" if is_live else line,
        place,
        PYTHONIOENCODING="ascii",
        TERM="xterm",
        COLUMNS="100",
        LINES="40",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/?/runs/" in done.stdout
    assert "node-1" in done.stdout


def test_a_closed_terminal_stops_the_run_in_order(run):
    """SIGHUP is Ctrl-C from a terminal that is not there any more."""
    run.process.send_signal(signal.SIGHUP)
    assert run.process.wait(DEADLINE_S) == 130
    assert '"ended"' in (run.folder / "run.json").read_text()
    assert "its terminal was closed (SIGHUP); pods end within" in (run.folder / "events.jsonl").read_text()


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize("option", ["--listen", "--probes"])
def test_an_address_of_the_page_server_that_is_taken_is_named(tmp_path, option):
    """By its option, and without a traceback."""
    (tmp_path / "config").write_text(KUBECONFIG)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = {"--listen": "127.0.0.1:0", "--probes": "127.0.0.1:0"}
        addresses[option] = f"127.0.0.1:{taken.getsockname()[1]}"
        words = " ".join(f"{name} {address}" for name, address in addresses.items())
        done = shell(f"{EDL} page-server --kubeconfig config {words}", tmp_path)
    assert done.returncode == 1
    assert f"{option}: {addresses[option]} cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
