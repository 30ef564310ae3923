"""`edl agent` as a process: the fake driver below the real pynvml, a kubelet's socket beside it, Prometheus above."""

import json
import os
import signal
import subprocess
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness import fake_nvml
from tests.harness.edl_command import EDL
from tests.harness.fake_kubelet import serving
from tests.harness.fake_nvml import Device
from tests.harness.master_process import free_port
from tests.harness.waiting import wait_for

GPU, OTHER = "GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-2222-3333-4444-555555555555"
UID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def scenario(tmp_path):
    """One GPU that works and one that nobody uses."""
    made = fake_nvml.Scenario(tmp_path / "scenario")
    made.devices = [
        Device(GPU, name="Tesla_T4", util=80, watts=65, energy=-1, mem=1 << 30, gpm=None),
        Device(OTHER, name="Tesla_T4", minor=1, watts=10, energy=-1, gpm=None),
    ]
    made.processes = [(GPU, 7, 75)]
    made.write()
    return made


@pytest.fixture
def environment(library, scenario):
    return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), fake_nvml.VARIABLE: str(scenario.path)}


@pytest.fixture
def node(tmp_path):
    """The host's /proc and log folders, as options of the command."""
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(f"0::/kubepods/pod{UID}/9f\n")
    (tmp_path / "pods" / f"ns_one_{UID}").mkdir(parents=True)
    return ["--proc", str(tmp_path / "proc"), "--pod-logs", str(tmp_path / "pods")]


@pytest.fixture
def agent(environment, node, socket, tmp_path):
    """A running agent with a window of one interval, and what it serves."""
    port = free_port()
    options = ["--window", "5s", "--listen", f"127.0.0.1:{port}", "--kubelet-socket", str(socket), *node]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([EDL, "agent", *options], env=environment, stderr=log)

    def values(name):
        """Values of a metric by its labels in order of their names, without those that are 0; None: not served yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
                families = list(text_string_to_metric_families(page.read().decode()))
        except OSError:
            return None
        samples = [one for family in families for one in family.samples if one.name == name and one.value]
        return {tuple(value for _, value in sorted(one.labels.items())): one.value for one in samples}

    yield process, values, (tmp_path / "log").read_text
    process.kill()
    process.wait()


def verdicts(values):
    """Verdict of each device by its name."""
    return {gpu: verdict for gpu, _, _, verdict in values("edl_gpu_verdict") or {}}


def test_verdicts_follow_the_devices(agent, kubelet, socket, scenario):
    """Busy, free and held devices and their pods are told as metrics, and SIGTERM ends the agent in order."""
    process, values, read_log = agent
    kubelet.give("one", GPU)
    with serving(kubelet, socket):
        wait_for("the free GPU", lambda: verdicts(values) == {"nvidia0": "active", "nvidia1": "free"})
        assert values("edl_gpu_pod_verdict") == {("ns", "one", GPU, "active"): 1.0}
        assert values("edl_gpu_utilization_ratio") == {("nvidia0", "Tesla T4", GPU): 0.8}
        scenario.processes = [(GPU, 7, -1)]
        scenario.devices[0].util = 0
        scenario.devices[0].watts = 30
        scenario.write()
        wait_for("the held GPU", lambda: verdicts(values) == {"nvidia0": "held", "nvidia1": "free"})
        assert values("edl_gpu_pod_verdict") == {("ns", "one", GPU, "held"): 1.0}
        scenario.failures["handle", OTHER] = 15
        scenario.write()
        wait_for("the lost GPU", lambda: verdicts(values) == {"nvidia0": "held", "nvidia1": "active"})
    wait_for("the kubelet's end", lambda: verdicts(values) == {"nvidia0": "active", "nvidia1": "active"})
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    log = read_log()
    assert f"{GPU} (nvidia0) is held" in log
    assert "Traceback" not in log


def test_an_upgraded_driver_ends_the_agent(agent, scenario):
    """A new process loads the new library; a driver that is not loaded ends nothing."""
    process, values, read_log = agent
    wait_for("the driver", lambda: values("edl_agent_driver_up"))
    scenario.driver = {"all": 9}
    scenario.write()
    wait_for("a driver that is gone", lambda: values("edl_agent_driver_up") == {})
    assert set(verdicts(values).values()) <= {"active"}
    assert process.poll() is None
    scenario.driver = {"all": 18}
    scenario.write()
    assert process.wait() == 1
    assert "start a new one" in read_log()


def test_once_prints_the_verdicts(environment, node):
    """Without Kubernetes, as a table and as JSON with the evidence."""
    command = [EDL, "agent", "--once", "--window", "5s", "--no-kubelet", *node]
    table = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert [line.split()[3] for line in table.splitlines()[1:]] == ["active", "free"]
    told = json.loads(subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True).stdout)
    first, second = told["devices"]
    assert [pod["name"] for pod in first["pods"]] == ["one"]
    assert (second["verdict"], second["uuid"]) == ("free", OTHER)
    assert {one["source"]: one["state"] for one in second["evidence"]} == {
        "counters": "low",
        "gpm": "unsupported",
        "power": "low",
        "processes": "low",
    }


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--interval", "1s"], 2, "--interval is below 5s"),
        (["--interval", "16s"], 2, "--interval is above 15s"),
        (["--window", "1s"], 2, "--window"),
        (["--json"], 2, "--once"),
        (["--idle-watts", "L4"], 2, "MODEL=WATTS"),
        (["--idle-watts", "L4=nan"], 2, "MODEL=WATTS"),
        (["--listen", "nowhere"], 2, "HOST:PORT"),
        (["--report", "--api-server", "https://10.0.0.1:6443"], 2, "HOST:PORT"),
        (["--report", "--api-server", "10.0.0.1:https"], 2, "HOST:PORT"),
    ],
)
def test_wrong_options_are_refused(environment, options, code, message):
    """With the option's name and what to write."""
    done = subprocess.run([EDL, "agent", *options], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert message in done.stderr


def test_once_without_a_driver_fails(tmp_path, library):
    """And says what is missing, and not that there are no GPUs."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), fake_nvml.VARIABLE: str(tmp_path / "none")}
    command = [EDL, "agent", "--once", "--window", "5s", "--no-kubelet"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "driver" in done.stderr
    assert "no GPUs" not in done.stdout
    assert "Traceback" not in done.stderr
