"""The driver of real passes on a small cluster: every arm meets the scenario, and what came of it is kept and told."""

from pathlib import Path

import pytest

from autoscaler.domain import Role
from experiments.real.measurement import measure_real
from experiments.real.recording import file_of, read_recording
from experiments.scenarios.loading import read_scenario
from tests.cluster.experiment import __main__ as driver

FILE = Path(__file__).with_name("small-experiment.yaml")
SCENARIO = read_scenario(FILE)


@pytest.mark.usefixtures("cluster_tools")
@pytest.mark.parametrize("arm", ["edl2017", "ours-scheduler", "ours-planner"])
def test_an_arm_meets_the_scenario_on_a_real_control_plane(arm, tmp_path):
    """Web pods get what they ask for, trainers take the rest, no node holds more than it has, and nothing is lost."""
    assert driver.main(["--scenario", str(FILE), "--arm", arm, "--results", str(tmp_path)]) == 0
    task = driver.find_task(SCENARIO, arm, "mix-1", 1)
    kept = read_recording(file_of(task, tmp_path))
    found = measure_real(task.setting, kept.pods)
    assert kept.remarks == ()
    assert found["jobs_with_all_servers"] == 2
    assert found["trainers_mean"] >= 2
    assert {pod.role for pod in kept.pods} == set(Role)
    web = [pod for pod in kept.pods if pod.owner == "nginx"]
    assert sum(pod.running_at_s is not None and pod.terminating_at_s is None for pod in web) == 6
    assert found["trainers_killed"] == 0
    assert found["web_back_at_peak_passes_percent"] == 0.0, "6 of 8 at the end"
    assert kept.machine.cpu_s["kube-apiserver"] > 0
