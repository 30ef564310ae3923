"""A pass on a real control plane is kept whole, and judged by the same metrics as a simulated one."""

from dataclasses import replace

import pytest

from autoscaler.domain import Resources, Role, Tier
from experiments.arms.pass_setup import ReplicaChange, make_physics
from experiments.errors import RefusedInputError
from experiments.published.curves import read_curves
from experiments.real.measurement import (
    list_phases,
    measure_phases,
    measure_real,
    phase_metric,
    record_of,
    simulate_counterpart,
)
from experiments.real.recording import (
    MachineUse,
    RealPod,
    Recording,
    file_of,
    has,
    list_recordings,
    read_recording,
    write_recording,
)
from experiments.reporting.real_figure import Clock
from experiments.reporting.real_page import format_real, pace_s
from experiments.running.result_store import digest
from experiments.running.simulation import simulate_pass
from experiments.running.tasks import Selection, list_tasks
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import read_mixes
from experiments.scenarios.schema import Scenario

SCENARIO = Scenario.model_validate(
    {
        "name": "small",
        "title": "A small cluster",
        "until_s": 60,
        "measured_until_s": 60,
        "warm_up_s": 5,
        "nodes": [{"count": 2, "cpu": 10, "memory": "16Gi"}],
        "web": [
            {"name": "nginx", "pod": {"cpu": 2, "memory": "1Gi"}, "replicas": 1, "steps": [{"at_s": 30, "replicas": 2}]}
        ],
        "jobs": [
            {
                "name": "job",
                "trainer": {"cpu": 2, "memory": "1Gi", "min": 1, "max": 8, "static": 3},
                "servers": {"count": 1, "cpu": 1, "memory": "1Gi"},
                "master": {"cpu": "100m", "memory": "100Mi"},
            }
        ],
        "arms": ["edl2017", "ours-planner"],
        "passes": 1,
        "bounds": False,
    }
)
TASK = list_tasks(SCENARIO, read_mixes(), Selection(arm="ours-planner"))[0]
MACHINE = MachineUse(
    about={"system": "Linux"},
    cores=2,
    load_mean=1.5,
    load_max=2.5,
    busy_percent=70.0,
    saturated_percent=3.0,
    cpu_s={"kube-apiserver": 12.0},
    others_cpu_s=4.0,
    late_s=0.02,
    late_beats_percent=0.0,
)


def pod(name, owner, role, *, cpu=2_000, at=(0.0, 0.1, 1.0, None, None), **more):
    created_at_s, bound_at_s, running_at_s, told_at_s, gone_at_s = at
    told = {
        "tier": Tier.EXTERNAL if role is Role.EXTERNAL else Tier.CORE,
        "node": "n0-0000",
        "requests": Resources(cpu_milli=cpu, memory_bytes=2**30),
        "was_drained": None,
        "is_preempted": False,
        **more,
    }
    return RealPod(
        name=name,
        owner=owner,
        role=role,
        created_at_s=created_at_s,
        bound_at_s=bound_at_s,
        running_at_s=running_at_s,
        terminating_at_s=told_at_s,
        gone_at_s=gone_at_s,
        **told,
    )


PODS = (
    pod("nginx-1", "nginx", Role.EXTERNAL, at=(-5.0, -4.9, -4.0, None, None)),
    pod("nginx-2", "nginx", Role.EXTERNAL, at=(30.0, 33.0, 34.0, None, None)),
    pod("master", "job-01", Role.MASTER, cpu=100),
    pod("server", "job-01", Role.SERVER, cpu=1_000, at=(0.0, 0.1, 3.0, None, None)),
    pod("trainer-0", "job-01", Role.TRAINER, at=(0.0, 0.1, 2.0, None, None)),
    pod(
        "trainer-1",
        "job-01",
        Role.TRAINER,
        at=(0.0, 0.1, 2.0, 31.0, 33.0),
        tier=Tier.SURPLUS,
        was_drained=True,
        is_preempted=True,
    ),
)


@pytest.fixture(scope="module")
def simulated():
    return simulate_counterpart(TASK.setting, passes=2)


@pytest.fixture
def recording(simulated):
    return Recording(
        version="abc",
        scenario=digest(SCENARIO),
        experiment="small",
        mix=TASK.mix,
        arm=TASK.arm,
        seed=TASK.setting.seed,
        begun="2026-01-01T00:00:00Z",
        machine=MACHINE,
        evictions={"scheduler": 1},
        remarks=("one",),
        pods=PODS,
        simulated=simulated,
    )


def test_metrics_of_a_real_pass_are_those_of_its_pods():
    found = measure_real(TASK.setting, PODS)
    assert found["web_wait_max_s"] == pytest.approx(3.0)
    assert found["web_rise_s"] == pytest.approx(4.0)
    assert (found["trainers_removed"], found["trainers_drained"], found["trainers_preempted"]) == (1, 1, 1)
    assert found["mean_pending_s"] == pytest.approx(2.0)
    assert found["trainable_pending_s"] == pytest.approx(3.0)
    assert found["utilisation_from_30_s_percent"] == pytest.approx(
        100 * sum([7.1, 7.1, 7.1, 5.1, *[7.1] * 26]) / 30 / 20
    )
    assert "samples_trained" not in found


def test_a_leaving_pod_is_used_room_but_no_trainer():
    take = record_of(TASK.setting, PODS)
    assert take.jobs["job-01"].trainers.at(32.0) == 1
    assert take.utilisation.at(32.0) == pytest.approx(100 * 7.1 / 20)
    assert take.utilisation.at(33.5) == pytest.approx(100 * 5.1 / 20)


def test_a_recording_is_read_as_it_was_written(recording, tmp_path):
    file = file_of(TASK, tmp_path)
    write_recording(recording, file)
    assert read_recording(file) == recording
    assert list_recordings(tmp_path) == [recording]
    assert list(tmp_path.iterdir()) == [file]


def test_a_pass_is_kept_by_its_version_and_scenario_alone(recording, tmp_path):
    file = file_of(TASK, tmp_path)
    assert not has(TASK, "abc", tmp_path)
    write_recording(recording, file)
    assert has(TASK, "abc", tmp_path)
    assert not has(TASK, "abd", tmp_path)
    write_recording(replace(recording, scenario="other"), file)
    assert not has(TASK, "abc", tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"pods": [[1]]}', '{"pods": [], "simulated": {}}'])
def test_what_is_no_recording_is_refused(text, tmp_path):
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    with pytest.raises(RefusedInputError, match="is not a stored pass"):
        list_recordings(tmp_path)


def test_a_folder_that_cannot_be_written_leaves_nothing(recording, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RefusedInputError, match="cannot be written"):
        write_recording(recording, tmp_path / "file" / "x.json")


def test_phases_lie_between_the_steps_and_are_told_by_their_beginning():
    changes = [ReplicaChange(web="w", at_s=at_s, before=1, wanted=n) for at_s, n in ((10.0, 3), (20.0, 2), (40.0, 1))]
    phases = list_phases(changes, 1, 30.0)
    assert [(one.from_s, one.until_s, one.web) for one in phases] == [(0, 10, 1), (10, 20, 3), (20, 30, 2)]
    means = measure_phases(phases, [1.0, 2.0, 3.0, 4.0, 6.0], 5.0)
    assert means == {phase_metric(phases[0]): 1.5, phase_metric(phases[1]): 3.5, phase_metric(phases[2]): 6.0}


def test_published_steps_are_moved_to_where_they_were_planned():
    clock = Clock(came_s=(100.0, 200.0), planned_s=(80.0, 170.0))
    assert clock.planned([0.0, 50.0, 100.0, 150.0, 200.0, 260.0]) == pytest.approx([0, 40, 80, 125, 170, 230])
    assert Clock(came_s=(), planned_s=()).planned([0.0, 7.0]) == [0.0, 7.0]


def test_the_simulators_word_is_of_todays_scheduler_with_the_timings_of_2017():
    case_2 = find_scenario("edl2017-case2").model_copy(update={"bounds": False})
    setting = list_tasks(case_2, read_mixes(), Selection(arm="edl2017", mix="mix-1"))[0].setting
    today = replace(setting, is_today=True)
    assert make_physics(today) == replace(make_physics(setting), spreads_scale_down=True)
    # The scheduler of 1.6 tried again when its back-off said so, today's when there is room.
    assert simulate_pass(today).metrics["web_wait_max_s"] < simulate_pass(setting).metrics["web_wait_max_s"] - 30


def test_the_page_tells_differences_machine_and_remarks(recording, tmp_path):
    parts = "\n".join(format_real([recording], [SCENARIO], {}, read_curves(), tmp_path))
    assert (tmp_path / "small-real.png").stat().st_size > 10_000
    assert "| quantity | 2017 | ours-planner, simulated | ours-planner, real |" in parts
    assert "| longest wait of a web pod for capacity, s |  | " in parts
    assert "- ours-planner: one" in parts
    assert "1 by scheduler" in parts
    assert "| kube-apiserver | 12 |" in parts


def test_a_pass_on_a_busy_machine_is_told_as_one(recording, tmp_path):
    quiet = "\n".join(format_real([recording], [SCENARIO], {}, (), tmp_path))
    assert "for itself" not in quiet
    busy = replace(recording, machine=replace(MACHINE, saturated_percent=80.0))
    told = "\n".join(format_real([busy], [SCENARIO], {}, (), tmp_path))
    assert "**ours-planner ran on a busy machine**: in 80 % of the seconds" in told


def test_the_pace_of_creation_is_the_median_within_one_go():
    instants = (0.0, 0.1, 0.3, 0.4, 30.0, 30.1)
    trainers = [
        pod(f"t{n}", "job-01", Role.TRAINER, at=(at_s, None, None, None, None)) for n, at_s in enumerate(instants)
    ]
    assert pace_s(trainers) == pytest.approx(0.1)
    assert pace_s(trainers[:1]) is None


def test_a_recording_of_another_scenario_is_not_told(recording, tmp_path):
    assert format_real([replace(recording, scenario="other")], [SCENARIO], {}, (), tmp_path) == []
