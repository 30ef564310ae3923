"""The playground is up when it says so, and gone when it says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def playground(cluster_tools, tmp_path):
    """`playground("up")` is its exit code and what it says."""
    folder = tmp_path / "playground"

    def run(what):
        command = [sys.executable, "-m", "tests.cluster.playground", what, "--folder", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
        return done.returncode, done.stdout + done.stderr

    run.folder = folder
    yield run
    run("down")


def test_it_runs_until_told_to_go(playground, control_plane):
    """What it prints is what works; a second `up` leaves it alone."""
    code, told = playground("up")
    assert code == 0, told
    state = json.loads((playground.folder / "state.json").read_text())
    assert f"export KUBECONFIG={state['kubeconfig']}" in told
    assert os.access(f"{state['bin']}/kubectl", os.X_OK)
    keeper = int((playground.folder / "lock").read_text())

    nodes = json.loads(control_plane.kubectl("get", "nodes", "-o", "json", kubeconfig=state["kubeconfig"]))["items"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["8"] * 8

    control_plane.kubectl("apply", "-f", str(ROOT / "examples" / "kubernetes"), kubeconfig=state["kubeconfig"])
    grown = "jsonpath={.status.trainers.ready}=8"
    control_plane.kubectl("wait", f"--for={grown}", "tj/digits", "--timeout=60s", kubeconfig=state["kubeconfig"])

    assert playground("up") == (0, told)
    assert int((playground.folder / "lock").read_text()) == keeper
    assert playground("down")[0] == 0
    assert playground("status")[0] == 1
    assert not (playground.folder / "control-plane" / "etcd").exists()  # so it stopped everything in order
