"""A scenario's objects, and what arms are told on a real control plane, say what the simulated ones are given."""

import pytest

from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, InvalidError, UnavailableError
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job, to_planner_job
from autoscaler.domain import PodPhase, Resources, Role
from autoscaler.operator.process.policy_file import parse_policy
from experiments.arms.edl2017 import observe_jobs
from experiments.arms.ours import make_policy
from experiments.arms.pass_setup import PassSetup, make_physics
from experiments.running.tasks import Selection, list_tasks
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import read_mixes
from tests.cluster.experiment.bodies import controller_of_2017, node_shape, system_pod, training_job, web_deployment
from tests.cluster.experiment.compressing import compress
from tests.cluster.experiment.insisting import BUDGET_S, insist
from tests.cluster.experiment.of_2017 import RealControllers
from tests.cluster.experiment.ours import parse_evictions, written_policy
from tests.cluster.pod_timeline import PodTimeline, PodTimes
from tests.harness import virtual_time

CASE_2 = find_scenario("edl2017-case2")


def setting_of(arm):
    return list_tasks(CASE_2, read_mixes(), Selection(arm=arm, mix="mix-1"))[0].setting


@pytest.mark.parametrize("arm", ["ours-planner", "ours-scheduler"])
def test_the_operator_has_the_policy_of_the_simulated_arm(arm):
    policy = make_policy(setting_of(arm))
    assert parse_policy(written_policy(policy)) == policy


def test_a_training_job_is_read_as_the_simulated_job():
    setting = setting_of("ours-planner")
    job = PassSetup(setting).submissions[0].job
    body = training_job(job, make_physics(setting))
    body["metadata"] |= {"namespace": "x", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    read = to_planner_job(parse_job(body), priority=0, offset_s=0.0)
    assert read.trainer.shape.requests == job.trainer.shape.requests
    assert (read.trainer.min_replicas, read.trainer.max_replicas) == (2, 60)
    assert read.servers.shape.requests == job.servers.shape.requests
    assert read.server_count == job.server_count
    assert read.master.shape.requests == job.master.shape.requests


def test_pods_live_as_long_as_in_the_simulator():
    ours, old = (make_physics(setting_of(arm)) for arm in ("ours-planner", "edl2017"))
    web = web_deployment(CASE_2.web[0], ours)["spec"]["template"]
    told = {name.split("/")[1]: value for name, value in web["metadata"]["annotations"].items()}
    assert told == {"start-after": "1s", "start-before": "3s", "leave-after": "0.3s"}
    job = PassSetup(setting_of("edl2017")).submissions[0].job
    trainer = controller_of_2017(job, Role.TRAINER, 7, old)["spec"]
    told = {name.split("/")[1] for name in trainer["template"]["metadata"]["annotations"]}
    assert told == {"start-after", "start-before"}, "a trainer of 2017 heeds no SIGTERM"
    assert (trainer["parallelism"], trainer["template"]["spec"]["terminationGracePeriodSeconds"]) == (7, 30)


def test_nodes_and_system_pods_add_up_to_the_cluster_of_2017():
    nodes = PassSetup(setting_of("edl2017")).nodes
    assert sum(int(node_shape(node).cpu.removesuffix("m")) for node in nodes) == 2_348_000
    request = system_pod("n1")["spec"]["containers"][0]["resources"]["requests"]
    assert request == {"cpu": "380m"}


def test_the_algorithm_of_2017_sees_pods_by_phase_and_what_they_leave_of_nodes():
    stage = PassSetup(setting_of("edl2017"))
    timeline = PodTimeline(api=None, namespace="x", capacity_milli={})
    controllers = RealControllers(stage.nodes, timeline)
    job = stage.submissions[0].job
    controllers.submit(job, stage.submissions[0].work)
    node = stage.nodes[0]
    instants = {
        "pending": {},
        "starting": {"bound_at_s": 1.0, "node": str(node.name)},
        "ready": {"bound_at_s": 1.0, "running_at_s": 2.0, "node": str(node.name)},
        "leaving": {"bound_at_s": 1.0, "running_at_s": 2.0, "told_at_s": 3.0, "node": str(node.name)},
        "gone": {"bound_at_s": 1.0, "ended_at_s": 3.0, "node": str(node.name)},
    }
    for name, more in instants.items():
        timeline.pods[name] = PodTimes(
            name=name,
            uid=name,
            requests=Resources(cpu_milli=5_000, memory_bytes=2**33),
            job=str(job.name),
            role="trainer",
            is_surplus=False,
            priority=0,
            app="",
            created_at_s=0.0,
            **more,
        )
    seen = observe_jobs(controllers, {job.name: 4})[0]
    assert (seen.pods, seen.running, seen.pending, seen.parallelism) == (4, 1, 2, 4)
    assert {pod.phase for pod in controllers.pods.values()} == {
        PodPhase.PENDING,
        PodPhase.STARTING,
        PodPhase.READY,
        PodPhase.TERMINATING,
    }
    assert controllers.free_on(node.name).cpu_milli == max(0, node.allocatable.cpu_milli - 15_000)


def test_wishes_wait_in_order():
    stage = PassSetup(setting_of("edl2017"))
    controllers = RealControllers(stage.nodes, PodTimeline(api=None, namespace="x", capacity_milli={}))
    job = stage.submissions[0].job
    controllers.submit(job, stage.submissions[0].work)
    controllers.set_replicas(job.name, Role.TRAINER, 2)
    controllers.set_replicas(job.name, Role.TRAINER, 5)
    assert [controllers.wishes.get_nowait()[2] for _ in range(2)] == [2, 5]


def test_evictions_are_read_of_trainers_alone():
    metrics = (
        'edl_pod_terminations_total{cause="scheduler",role="trainer"} 12.0\n'
        'edl_pod_terminations_total{cause="edl",role="server"} 3.0\n'
        'edl_pod_terminations_total{role="trainer",cause="edl"} 4.0\n'
        "edl_events_dropped 0.0\n"
    )
    assert parse_evictions(metrics) == {"scheduler": 12, "edl": 4}


def test_a_compressed_scenario_keeps_its_order_and_says_so_in_its_name():
    small = compress(CASE_2, 10)
    assert (small.name, small.until_s, small.jobs[0].every_s) == ("edl2017-case2-by-10", 64.0, 0.5)
    assert [step.replicas for step in small.web[0].steps] == [step.replicas for step in CASE_2.web[0].steps]
    assert small.web[0].steps[0].at_s == pytest.approx(8.5)


class Write:
    """Ends in one error after the other, then in success."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def away():
    return UnavailableError("no answer", may_have_happened=True)


@pytest.mark.parametrize(
    ("errors", "calls"), [((), 1), ((away(), away()), 3), ((away(), AlreadyExistsError("it stands")), 2)]
)
def test_a_write_is_made_until_it_stands(errors, calls):
    write = Write(*errors)
    virtual_time.run(insist(write))
    assert not write.errors
    assert write.calls == calls


def test_a_write_that_is_refused_or_never_answered_ends_the_pass():
    with pytest.raises(InvalidError):
        virtual_time.run(insist(Write(InvalidError("wrong"))))
    write = Write(*(away() for _ in range(1_000)))
    with pytest.raises(UnavailableError):
        virtual_time.run(insist(write))
    assert BUDGET_S < write.calls < 3 * BUDGET_S
