"""What `edl why`, `plan` and `what-if` see of a cluster: the operator's reading of one listing of each kind."""

import asyncio
import time

import pytest

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.api_errors import NO_DEFINITION
from autoscaler.cli.kubernetes.cluster_snapshot import PLANNER_ROLE, find_setup, read_cluster_snapshot
from autoscaler.cli.kubernetes.describe_job import waiting_share_of
from autoscaler.cli.output.planner_report import why_lines
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, NotFoundError, RefusedBy
from autoscaler.domain import Bottleneck, JobState, PodPhase, Policy, Reclaim, Role
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.report_documents import make_object, make_status
from autoscaler.operator.process.policy_file import policy_config_map
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import PlanInputs, explain
from autoscaler.snapshots import format_document, parse_document, to_document
from autoscaler.throughput.remaining_time import RemainingWork
from autoscaler.views.jobs.remaining_time import planned_remaining
from autoscaler.views.planning.why import why_content
from tests.unit.cli.kube_place import NAMESPACE, STATUS, node, raw_pod, stage, status

NOW_S = 1767323045.0 + 90.0

JOB_FILE = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: more}
spec:
  priorityClassName: CLASS
  trainer:
    minReplicas: 3
    maxReplicas: 4
    template:
      spec:
        nodeSelector: {zone: a}
        containers: [{name: t, image: i, resources: {requests: {cpu: 1, memory: 64Mi}}}]
  checkpoint: {uri: "file:///shared/more"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template: {spec: {containers: [{name: w, resources: {requests: {cpu: 2, memory: 64Mi}}}]}}
"""


class Refusing:
    """An API whose listings of some kinds end in an error."""

    def __init__(self, api, errors):
        self._api = api
        self._errors = errors

    def __getattr__(self, name):
        return getattr(self._api, name)

    async def list(self, kind, *scope):
        if kind in self._errors:
            raise self._errors[kind]
        return await self._api.list(kind, *scope)


def forbidden(kind):
    return {kind: ForbiddenError(f"list {kind.plural}: forbidden", RefusedBy.RBAC)}


def policy_map(written, namespace="edl-system"):
    labels = {"app.kubernetes.io/part-of": "edl"}
    return {
        "metadata": {"name": "edl-policy", "namespace": namespace, "labels": labels},
        "data": {"policy.yaml": written},
    }


def test_the_view_holds_what_stands_and_plans_as_the_operator_would():
    """Jobs and pods under NAMESPACE/NAME, other people's pods, nodes; and the file of it answers the same."""
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        made.make_trainers(made.make_job(), 2)
        made.make(kinds.PODS, raw_pod("web-1", node="n1"))
        found = place.snapshot()
    pods = {pod.name: (pod.job, pod.phase) for pod in found.view.pods}
    assert pods["team-a/digits-trainer-1"] == ("team-a/digits", PodPhase.READY)
    assert pods["team-a/web-1"][0] is None
    assert [job.name for job in found.view.jobs] == ["team-a/digits"]
    assert found.view.is_synced
    (decision,) = plan(found.view, found.policy, found.now_s).decisions
    assert decision.now == 2
    again = parse_document(format_document(to_document(found)))
    assert plan(again.view, again.policy, again.now_s) == plan(found.view, found.policy, found.now_s)


def test_idle_pods_are_those_of_the_agents_reports_also_in_the_file():
    """`edl what-if --reclaim-idle` knows whose GPUs are unused, and with whose consent."""
    with stage() as (made, place):
        now_s = time.time()
        made.make(kinds.NODES, node())
        status_of_pod = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        asked = {"resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}
        alice = raw_pod(
            "alice",
            node="n1",
            status=status_of_pod,
            meta={"annotations": {"edl.dev/idle-reclaim": "30m"}},
            containers=[{"name": "c", "image": "i", **asked}],
        )
        made.make(kinds.PODS, alice)
        gpu = GpuReport(
            uuid="GPU-1",
            model="m",
            verdict=GpuVerdict.HELD,
            low_since_s=now_s - 7_200.0,
            pods=(f"{NAMESPACE}/alice",),
        )
        report = NodeGpuReport(node="n1", gpus=(gpu,), reported_at_s=now_s)
        made.make(kinds.NODE_GPUS, {**make_object("n1", ""), "status": make_status(report)})
        found = place.snapshot()
    [idle] = found.view.idle_pods
    assert (idle.pod, idle.after_s) == (f"{NAMESPACE}/alice", 1_800.0)
    again = parse_document(format_document(to_document(found)))
    assert again.view.idle_pods == found.view.idle_pods


def test_idle_trainers_and_curves_are_those_that_the_operator_wrote():
    """The plan keeps the job from growing, as the operator's own does; an entry without pod or instant is none.

    The curve and the samples that are left tell how long the job takes at the size of the plan.
    """
    idle = [
        {"name": "digits-trainer-2", "since": "2026-01-02T03:04:06Z", "hangs": False},
        {"name": "digits-trainer-1", "since": "yesterday", "hangs": True},
        {"since": "2026-01-02T03:04:06Z"},
        "digits-trainer-0",
    ]
    points = [
        {
            "trainers": size,
            "servers": 0,
            "samplesPerSecond": speed,
            "seconds": 60.0,
            "unixTime": NOW_S,
            "setting": "b 8",
        }
        for size, speed in ((1, 10.0), (2, 17.0), (4, 26.0))
    ]
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        told = status(trainers=STATUS["trainers"] | {"idle": idle}, throughput={"points": points, "setting": "b 8"})
        sizes = {"minReplicas": 1, "maxReplicas": 8}
        made.make_trainers(made.make_job(told=told, trainer=sizes), 3)
        found = place.snapshot()
    (job,) = found.view.jobs
    assert [(one.pod, one.is_hung) for one in job.idle] == [(f"{NAMESPACE}/digits-trainer-2", False)]
    assert job.throughput.sizes == (1, 2, 4)
    again = parse_document(format_document(to_document(found)))
    assert again.view.jobs == found.view.jobs
    (decision,) = plan(found.view, found.policy, found.now_s).decisions
    assert decision.bottleneck is Bottleneck.IDLE
    assert job.remaining_work == RemainingWork(samples=4_500.0, trainers=2)
    remaining = planned_remaining(job, decision)
    assert remaining.trainers == decision.target == 3
    assert remaining.shortest_s <= 4_500 / 22 <= remaining.longest_s, "17 samples/s at 2 trainers, 26 at 4"
    explanation = explain(PlanInputs(view=found.view, policy=found.policy, now_s=found.now_s), job.name)
    assert f"Idle: {NAMESPACE}/digits-trainer-2 completed no batch for the job's window" in why_lines(
        explanation, 3, job
    )


@pytest.mark.parametrize(
    ("told", "spec", "state"),
    [
        (None, {}, JobState.ACTIVE),
        (status(), {}, JobState.ACTIVE),
        (status({"type": "Completed", "status": "True"}), {}, JobState.OVER),
        (status({"type": "Failed", "status": "False"}), {}, JobState.ACTIVE),
        (status(), {"runPolicy": {"suspend": True}}, JobState.SUSPENDED),
    ],
)
def test_a_jobs_life_is_read_from_its_status(told, spec, state):
    """As an operator reads it that has just begun to lead."""
    with stage() as (made, place):
        made.make_job(told=told, **spec)
        (job,) = place.snapshot().view.jobs
    assert job.state is state


def test_the_age_of_the_checkpoint_is_told():
    """It decides whose trainers are cheap to take."""
    with stage() as (made, _), asyncio.Runner() as runner:
        made.make_job()
        taken = runner.run(read_cluster_snapshot(made.api, title="here", now_s=NOW_S))
    (job,) = taken.snapshot.view.jobs
    assert job.checkpoint_age_s == 80.0, "90 s, rounded as the operator rounds"


@pytest.mark.parametrize(
    ("maps", "reclaim", "said"),
    [
        ([], Reclaim.SCHEDULER, "the default policy is used: no ConfigMap"),
        ([policy_map("reclaim: planner")], Reclaim.PLANNER, "is that of ConfigMap edl-system/edl-policy"),
        ([policy_map("reclaim: perhaps")], Reclaim.SCHEDULER, "policy.reclaim: is 'perhaps'"),
        ([policy_map("[")], Reclaim.SCHEDULER, "is not YAML"),
    ],
)
def test_the_policy_is_the_operators_where_it_can_be_read(maps, reclaim, said):
    """And it is said whose it is."""
    with stage() as (made, _), asyncio.Runner() as runner:
        for one in maps:
            made.make(kinds.CONFIG_MAPS, one)
        setup = runner.run(find_setup(made.api))
    assert setup.policy.reclaim is reclaim
    assert said in setup.note


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        ([], (True, False)),
        ([policy_map("reclaim: planner")], (True, False)),
        ([policy_config_map(Policy(), namespace="edl-system", elastic_servers=False)], (False, False)),
        ([policy_config_map(Policy(), namespace="edl-system", moves_servers=True)], (True, True)),
    ],
)
def test_servers_may_change_in_a_plan_where_the_operator_changes_them(maps, expected):
    """`edl why` otherwise says that three servers are going to one, which nobody will do."""
    with stage() as (made, place):
        for one in maps:
            made.make(kinds.CONFIG_MAPS, one)
        capabilities = place.snapshot().view.capabilities
    assert (capabilities.servers_elastic, capabilities.moves_servers) == expected


def test_what_the_user_may_not_see_is_said(capsys):
    """Quotas may be left out; without the pods of all there is no room to speak of."""
    with stage(wrap=lambda api: Refusing(api, forbidden(kinds.RESOURCE_QUOTAS))) as (made, place):
        made.make_job()
        assert place.snapshot().view.is_synced
    assert "resourcequotas may not be seen and are left out" in capsys.readouterr().err
    with stage(wrap=lambda api: Refusing(api, forbidden(kinds.PODS) | forbidden(kinds.NODES))) as (_, place):
        with pytest.raises(CommandError, match=f"list pods: .*list nodes: .*administrator.*{PLANNER_ROLE}") as caught:
            place.snapshot()
        assert caught.value.code is Exit.REFUSED


def test_what_a_limit_range_forbids_is_said(capsys):
    """And planned so: the job grows by nothing."""
    least = {"type": "Container", "min": {"cpu": "64"}}
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        made.make_trainers(made.make_job(), 2)
        made.make(kinds.LIMIT_RANGES, {"metadata": {"name": "r", "namespace": NAMESPACE}, "spec": {"limits": [least]}})
        found = place.snapshot()
    assert "tj/team-a/digits gets no pods: spec.master.template.spec.containers[0]" in capsys.readouterr().err
    (decided,) = plan(found.view, found.policy, found.now_s).decisions
    assert decided.target == decided.now


def test_the_policy_is_read_where_it_usually_stands_by_who_may_list_nothing():
    with stage(wrap=lambda api: Refusing(api, forbidden(kinds.CONFIG_MAPS))) as (made, place):
        made.make(kinds.CONFIG_MAPS, policy_map("reclaim: planner"))
        assert place.snapshot().policy.reclaim is Reclaim.PLANNER


def test_a_cluster_without_the_definition_is_told_apart():
    """From one without jobs."""
    errors = {kinds.TRAINING_JOBS: NotFoundError("list trainingjobs: 404 page not found")}
    with stage(wrap=lambda api: Refusing(api, errors)) as (_, place):
        for ask in (place.snapshot, lambda: place.get("tj", ""), lambda: list(place.watch("tj", ""))):
            with pytest.raises(CommandError) as caught:
                ask()
            assert (caught.value.code, caught.value.message) == (Exit.NOT_FOUND, NO_DEFINITION)


def test_a_file_is_submitted_as_the_operator_would_read_it(tmp_path):
    """With the namespace, the cluster's classes, and the scheduling rules of its pods."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB_FILE.replace("CLASS", "edl-core"))
    with stage() as (_, place):
        moment = place.snapshot()
        found = place.read_submission(file, moment.now_s)
        file.write_text(JOB_FILE.replace("CLASS", "edl-cor"))
        with pytest.raises(CommandError, match="no class edl-cor; the cluster has edl-core"):
            place.read_submission(file, moment.now_s)
    (job,), (web,) = found.jobs, found.workloads
    assert (job.name, job.submitted_at_s, web.name) == (f"{NAMESPACE}/more", moment.now_s, f"{NAMESPACE}/web")
    assert web.desired_replicas == 3
    assert job.trainer.shape.node_selector == {("zone", "a")}


def test_why_tells_that_servers_are_the_bottleneck():
    """From what the operator measured last, by the same model as on one machine."""
    told = status(progress={**STATUS["progress"], "waitingPercent": 50})
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        raw = made.make_job(told=told, server={"minReplicas": 2, "maxReplicas": 2})
        made.make_pods(raw, Role.TRAINER, 2)
        made.make_pods(raw, Role.SERVER, 2)
        found = place.snapshot()
    (job,) = found.view.jobs
    explanation = explain(PlanInputs(view=found.view, policy=found.policy, now_s=found.now_s), job.name)
    hint = "trainers wait for servers 50% of their time; 4 in place of 2: at most +33% (maxReplicas is 2)"
    assert f"Servers: {hint}" in why_lines(explanation, 2, job)
    assert why_content(explanation, job)["servers_hint"] == hint
    assert "Idle: one stands still" in why_lines(explanation, 2, job, idle="one stands still")
    assert "Training: NoTrainer: so" in why_lines(explanation, 2, job, not_training="NoTrainer: so")
    measured = why_lines(explanation, 2, job, is_ratio_measured=True)
    assert "and 2 parameter servers (always 2)" in measured, "no ratio decides it"


def test_why_tells_that_the_ratio_is_measured():
    """With `trainersPerServer: auto`: the ratio in force, and what it goes by."""
    servers = {"maxReplicas": 4, "trainersPerServer": "auto"}
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        raw = made.make_job(told=status(servers={"trainersPerServer": 2}), server=servers)
        made.make_pods(raw, Role.TRAINER, 1)
        made.make_pods(raw, Role.SERVER, 1)
        found, aside = place.snapshot(), place.job_facts("digits")
    (job,) = found.view.jobs
    explanation = explain(PlanInputs(view=found.view, policy=found.policy, now_s=found.now_s), job.name)
    trainers, told, *_ = why_lines(explanation, 2, job, is_ratio_measured=aside.is_ratio_measured)
    assert trainers.startswith(f"tj/{job.name} has 1 trainer")
    assert "1 trainers" not in trainers
    assert "1 to 4 allowed, one for every 2 trainers, as measured by how long trainers wait for them" in told


def test_a_share_of_time_that_cannot_be_is_none():
    """The status is anybody's to read; only what it says decides nothing by itself."""
    assert waiting_share_of({"status": {"progress": {"waitingPercent": 1000}}}) == 1.0
    assert waiting_share_of({"status": {"progress": {"waitingPercent": "much"}}}) == 0.0
    assert waiting_share_of({}) == 0.0
