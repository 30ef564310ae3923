"""`python -m trainer_sdk.pserver` as a process: what it needs, and that it ends when told."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest


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
    _, text = process.communicate(timeout=60)
    assert process.returncode == 2
    assert named in text
    assert "Traceback" not in text


def test_sigterm_ends_a_server_that_cannot_reach_its_master(tmp_path):
    """It waits for the master for as long as it lives, and goes when told."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        process = start(EDL_MASTER=f"127.0.0.1:{nobody.getsockname()[1]}", EDL_CHECKPOINT_URI=str(tmp_path))
        try:
            for line in process.stderr:
                if "listens on" in line:
                    break
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
            assert process.returncode == 0
            assert time.monotonic() - begun < 5
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
