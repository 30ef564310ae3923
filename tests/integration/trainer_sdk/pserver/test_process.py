"""`python -m trainer_sdk.pserver` as a process: what it needs, and that it ends when told."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.harness.certificates import JobAuthority


def start(**variables):
    base = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return subprocess.Popen(
        [sys.executable, "-m", "trainer_sdk.pserver"],
        env=base | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, "EDL_MASTER"),
        ({"EDL_MASTER": "127.0.0.1:1"}, "EDL_CHECKPOINT_URI"),
        ({"EDL_MASTER": "127.0.0.1:1", "EDL_CHECKPOINT_URI": "/tmp/x", "EDL_LISTEN": "nowhere"}, "EDL_LISTEN"),
        ({"EDL_MASTER": "127.0.0.1:1", "EDL_CHECKPOINT_URI": "/tmp/x", "EDL_TOKEN_FILE": "/no/file"}, "EDL_TOKEN_FILE"),
        ({"EDL_MASTER": "127.0.0.1:1", "EDL_CHECKPOINT_URI": "/tmp/x", "EDL_TLS_DIR": "/no/folder"}, "EDL_TLS_DIR"),
    ],
)
def test_wrong_environment_is_refused_by_the_variable(variables, named):
    """Exit code 2, one line, no traceback."""
    process = start(**variables)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 2
    assert named in text
    assert "Traceback" not in text


def listens_on(process):
    """The address, once it is there."""
    return next(line.split()[-1] for line in process.stderr if "listens on" in line)


@pytest.fixture
def server(tmp_path):
    """A server whose master is away, with the job's certificates and secret; (process, its environment)."""
    authority = JobAuthority("job")
    authority.issue(tmp_path / "tls")
    (tmp_path / "token").write_text("secret")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # not listening: connections are refused
        told = {
            "EDL_MASTER": f"127.0.0.1:{nobody.getsockname()[1]}",
            "EDL_CHECKPOINT_URI": str(tmp_path),
            "EDL_LISTEN": "0.0.0.0:0",
            "EDL_TOKEN_FILE": str(tmp_path / "token"),
            "EDL_TLS_DIR": str(tmp_path / "tls"),
        }
        process = start(**told)
        try:
            port = listens_on(process).rpartition(":")[2]
            yield process, told | {"EDL_LISTEN": f"0.0.0.0:{port}"}
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


def test_it_ends_with_the_process_that_started_it_though_the_master_is_gone_too(tmp_path):
    """As those of a script without a cluster that was killed: attempts to reach the master make events all the time."""
    process = start(
        EDL_MASTER=f"unix:{tmp_path}/nobody",
        EDL_CHECKPOINT_URI=str(tmp_path),
        EDL_LISTEN=f"unix:{tmp_path}",
        EDL_PARENT_PID="1",  # we are its parent, not process 1
    )
    try:
        _, text = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "the parent process has ended" in text


def probe(told, limit_s="50.0"):
    """What the kubelet would do; with another limit, for the machine may be busy, and nobody wants to wait."""
    code = f"import sys; from trainer_sdk.pserver import alive; alive.LIMIT_S = {limit_s}; sys.exit(alive.main())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | told, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stderr


def test_the_liveness_probe_is_answered_and_leaves_no_line_in_the_log(server):
    process, told = server
    assert probe(told) == (0, "")
    process.kill()
    assert "probe" not in process.stderr.read()
    returncode, text = probe(told)
    assert returncode == 1
    assert "refused" in text


def test_a_server_that_stands_still_does_not_answer_though_its_port_is_open(server):
    process, told = server
    process.send_signal(signal.SIGSTOP)
    returncode, text = probe(told, limit_s="1.0")
    assert returncode == 1
    assert "timed out" in text
    process.send_signal(signal.SIGCONT)
    assert probe(told)[0] == 0


def test_a_refusal_is_an_answer(server, tmp_path):
    """Secrets may have been made anew under a server that runs: that is no reason to kill it."""
    _, told = server
    (tmp_path / "token").write_text("another")
    returncode, text = probe(told)
    assert returncode == 0
    assert "secret" in text
    JobAuthority("another job").issue(tmp_path / "other")
    assert probe(told | {"EDL_TLS_DIR": str(tmp_path / "other")})[0] == 0
    assert probe(told | {"EDL_TLS_DIR": "/no/folder"})[0] == 0


def test_sigterm_ends_a_server_that_cannot_reach_its_master(tmp_path):
    """It waits for the master for as long as it lives, and goes when told."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
        process = start(EDL_MASTER=away, EDL_CHECKPOINT_URI=str(tmp_path), EDL_GRACE_S="1000")
        try:
            listens_on(process)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
