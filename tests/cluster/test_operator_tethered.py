"""The tests' operator ends with the tests, however these end.  Without a cluster: its API server never answers."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.harness.waiting import wait_for

ROOT = Path(__file__).parents[2]
TESTS = """
import signal, sys
from pathlib import Path
from tests.cluster.operator_process import OperatorProcess

folder = Path(sys.argv[1])
with OperatorProcess("one", folder, folder / "kubeconfig", lease="edl-system/edl") as operator:
    print(operator.program.pid, flush=True)
    signal.pause()
"""


def test_no_operator_outlives_tests_that_are_killed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write_kubeconfig(tmp_path / "kubeconfig", silent.getsockname()[1])
        tests = subprocess.Popen(
            [sys.executable, "-c", TESTS, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with tests:
            pid = int(tests.stdout.readline())
            wait_for("it begins", lambda: b"operator" in command_of(pid).split(b"\0"))
            tests.send_signal(signal.SIGTERM)
        wait_for("the operator's end", lambda: not command_of(pid))


def command_of(pid):
    """Empty: there is no such process any more."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it may end between opening and reading, too
        return b""


def write_kubeconfig(path, port):
    cluster = {"name": "silent", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    user = {"name": "operator", "user": {"token": "of-nobody"}}
    context = {"name": "only", "context": {"cluster": "silent", "user": "operator"}}
    whole = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context]}
    path.write_text(json.dumps(whole | {"current-context": "only"}), encoding="utf-8")
