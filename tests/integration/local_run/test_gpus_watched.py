"""GPUs by use in a run: the fake driver below the real pynvml, the run's pods on its devices, `edl get gpus` above."""

import json
import os

import pytest

from tests.harness import fake_nvml
from tests.harness.edl_command import EdlRun, edl
from tests.harness.fake_nvml import Device
from tests.harness.waiting import wait_for

WORKS, HELD, FREE = (f"GPU-{number}1111111-2222-3333-4444-555555555555" for number in range(3))

SERVICE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: notebook}
spec:
  replicas: 2
  template:
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: notebook
        command: [sleep, "1000"]
        resources: {requests: {cpu: 1, memory: 64Mi, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def scenario(tmp_path):
    """Three GPUs: the first works, the others do not."""
    made = fake_nvml.Scenario(tmp_path / "scenario")
    made.devices = [
        Device(WORKS, name="Tesla_T4", util=80, watts=65, energy=-1, gpm=None),
        Device(HELD, name="Tesla_T4", minor=1, watts=20, energy=-1, gpm=None),
        Device(FREE, name="Tesla_T4", minor=2, watts=10, energy=-1, gpm=None),
    ]
    made.write()
    return made


@pytest.fixture
def run(tmp_path, scenario):
    """A run of two pods with a GPU each, on one node with three."""
    library = fake_nvml.build(tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), fake_nvml.VARIABLE: str(scenario.path)}
    options = ("--gpu", "auto", "--gpu-window", "5s", "--nodes", "1")
    started = EdlRun(tmp_path, *options, files=SERVICE, environment=environment)
    yield started.folder
    started.end()


def gpus(run):
    """Verdict of each GPU, and whether a pod has it."""
    items = json.loads(edl("get", "gpus", "-o", "json", run=run))["items"]
    told = (one for item in items for one in item.get("status", {}).get("gpus", []))
    return {one["uuid"]: (one["verdict"], bool(one.get("pods"))) for one in told}


def test_a_run_tells_who_holds_its_gpus_and_who_works(run, scenario):
    """By the same objects as in a cluster: verdicts, pods and idle time; work that begins is told with its sample."""
    wanted = {WORKS: ("active", True), HELD: ("held", True), FREE: ("free", False)}
    wait_for("verdicts", lambda: gpus(run) == wanted)
    table = edl("get", "gpus", run=run).splitlines()
    assert table[0].split() == ["NODE", "GPU", "MODEL", "VERDICT", "LOW-FOR", "POD", "JOB", "WHY"]
    assert [line.split()[1] for line in table[1:]] == ["nvidia0", "nvidia1", "nvidia2"]
    assert "default/notebook-" in table[2]
    (heading, *holders) = edl("top", run=run).splitlines()
    assert [line.split()[0].startswith("pod/notebook-") for line in holders] == [True, True]
    first = dict(zip(heading.split(), holders[0].split(), strict=True))
    assert (first["GPUS"], first["HELD"], first["ACTIVE"]) == ("1", "1", "0")
    (heading, node) = edl("top", "nodes", run=run).splitlines()
    told = dict(zip(heading.split(), node.split(), strict=True))
    assert (told["NAME"], told["GPUS"], told["ACTIVE"], told["HELD"], told["FREE"]) == ("node-1", "3", "1", "1", "1")
    scenario.devices[1].util = 90
    scenario.write()
    wait_for("work that began", lambda: gpus(run)[HELD][0] == "active")
