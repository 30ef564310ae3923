"""What one job's start meets is that job's alone: the others start within their usual time (A11, ADR 0159)."""

from contextlib import suppress
from itertools import pairwise

import pytest

from autoscaler.clusters.kubernetes.api.decorators import ApiDecorator
from autoscaler.clusters.kubernetes.api.errors import BadRequestError, ForbiddenError, InvalidError, RefusedBy
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.gangs.gang_pods import GangPods
from autoscaler.clusters.kubernetes.gangs.start_backoff import START_LIMIT_S
from autoscaler.clusters.kubernetes.objects.node_affinity import tie_to_node
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask
from tests.unit.clusters.kubernetes.fake_controllers import CONTROLLER, add_job
from tests.unit.clusters.kubernetes.raw_objects import raw_job, template
from tests.unit.operator.term import Term

USUAL_STEPS = 3  # of a start that nobody disturbs
OTHER = "team-a/aaa"  # before the honest job by name; both are created within one second


def small(**fields):
    """A job that the honest one would have to wait for if one gang started at a time."""
    return raw_job("aaa", trainer={"minReplicas": 1, "maxReplicas": 1, "template": template(cpu="1")}, **fields)


def master_with(**container):
    one = template(cpu="100m", memory="64Mi", **container)
    return {"template": one}


async def step(term, times=1):
    """A second of everybody, all jobs told."""
    for _ in range(times):
        term.bench.rest.settle()
        await term.watch()
        await term.leading.loop.run_pass()
        with suppress(ClusterError):
            await term.leading.cluster._gangs.settle(term.bench.now_s)
        for name in list(term.leading.store.objects.jobs):
            with suppress(ClusterError):
                await term.leading.jobs.reconcile(name)
        await term.watch()
        for name in (*term.leading.store.objects.jobs, *term.leading.store.objects.unreadable):
            await term.leading.statuses.write(name)
        term.bench.now_s += 1.0


def admitted(term, name="aaa"):
    status = term.server.get(TRAINING_JOBS, "team-a", name).get("status") or {}
    found = next(one for one in status["conditions"] if one["type"] == "Admitted")
    return found["status"], found["reason"], found["message"]


def names(term, kind):
    return {raw["metadata"]["name"] for raw in term.server.all(kind)}


def foreign_deployment():
    labels = {"a": "b"}
    spec = {"containers": [{"name": "x", "image": "x"}]}
    return {
        "metadata": {"name": "aaa-master", "namespace": "team-a"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def forge_pod(term, job, name, node="n1", *, is_tied=False, gates=()):
    """A pod that its maker has made the job's, bound by hand."""
    role, _, number = name.removeprefix("aaa-").partition("-")
    labels = {"edl.dev/job": "aaa", "edl.dev/role": role, "edl.dev/ordinal": number, "edl.dev/tier": "core"}
    owner = {"apiVersion": "edl.dev/v1alpha1", "kind": "TrainingJob", "name": "aaa", "controller": True}
    spec = {"containers": [{"name": "x", "image": "x"}]} | ({"schedulingGates": list(gates)} if gates else {})
    body = {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": labels,
            "ownerReferences": [owner | {"uid": job["metadata"]["uid"]}],
        },
        "spec": tie_to_node(spec, node) if is_tied else spec,
    }
    term.server.create(PODS, body, CONTROLLER)
    if not gates:
        term.server.bind("team-a", name, node)


class Refusing(ApiDecorator):
    """Refuses the master's Deployment of one job, as it is judged too unless `is_late`."""

    def __init__(self, inner, error, *, is_late):
        super().__init__(inner)
        self.error, self.is_late = error, is_late

    async def create(self, kind, body):
        self._refuse(kind, body)
        return await super().create(kind, body)

    async def check_create(self, kind, body):
        if not self.is_late:
            self._refuse(kind, body)
        await super().check_create(kind, body)

    def _refuse(self, kind, body):
        if kind == DEPLOYMENTS and body["metadata"]["name"] == "aaa-master" and self.error is not None:
            raise self.error


INVALID = InvalidError('create deployments team-a/aaa-master: Deployment.apps "aaa-master" is invalid: spec: no')
QUOTA = ForbiddenError("create deployments team-a/aaa-master: exceeded quota: count", RefusedBy.QUOTA)
HOOK = ForbiddenError('create deployments team-a/aaa-master: admission webhook "x" denied', RefusedBy.ADMISSION)


@pytest.mark.parametrize(
    ("error", "reason"), [(INVALID, "PodInvalid"), (QUOTA, "Quota"), (HOOK, "PodRefused")], ids=lambda one: str(one)[:9]
)
@pytest.mark.parametrize("is_late", [False, True], ids=["judged", "when it is made"])
async def test_a_master_that_the_server_refuses_costs_its_own_job_the_start(error, reason, is_late):
    """The server's words stand in Admitted, nothing of the gang holds room, and it is tried again after pauses."""
    term = Term(around=lambda bench: Refusing(bench.api, error, is_late=is_late))
    add_job(term.server, small())
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)
    await step(term)
    assert admitted(term) == ("False", reason, str(error))
    assert "aaa-trainer-0" not in names(term, PODS)
    pauses = []
    for _ in range(90):
        hold_until_s = term.leading.cluster.start_backoff(OTHER).hold_until_s
        if not pauses or pauses[-1] != hold_until_s:
            pauses.append(hold_until_s)
        await step(term)
    assert 3 <= len(pauses) <= 5, "10, 20, 40, 80 s: no storm"
    assert [round(later - before) >= 10 for before, later in pairwise(pauses)].count(False) == 0
    term.api.error = None
    await step(term, 85)  # the pause of 80 s that has begun
    assert admitted(term)[0] == "True"


@pytest.mark.parametrize(
    "master",
    [
        master_with(name="A_b"),
        master_with(ports=[{"containerPort": 99999}]),
        master_with(volumeMounts=[{"name": "nothing", "mountPath": "/x"}]),
    ],
    ids=["container name", "port", "mount"],
)
async def test_a_master_template_that_is_wrong_starts_nothing_and_nobody_waits(master):
    """An older definition lets it pass: what reads the job says it first, else the API server's words."""
    term = Term()
    add_job(term.server, small(master=master))
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)
    status, reason, message = admitted(term)
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.master.template.spec.containers[0]" in message
    assert not any(name.startswith("aaa") for name in names(term, PODS))


async def test_a_deployment_of_somebody_else_under_the_masters_name_is_left_and_told():
    """Names prove nothing (ADR 0150)."""
    term = Term()
    add_job(term.server, small())
    term.server.create(DEPLOYMENTS, foreign_deployment(), CONTROLLER)
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)
    assert admitted(term)[:2] == ("False", "NameTaken")
    assert "rename one of the two" in admitted(term)[2]
    assert term.server.get(DEPLOYMENTS, "team-a", "aaa-master")["spec"] == foreign_deployment()["spec"]


async def test_a_deployment_that_others_make_while_the_gang_is_bound_ends_the_start():
    term = Term()
    add_job(term.server, small())
    term.bench.rest.holds_back = {"aaa-trainer-0"}
    await step(term)
    term.server.create(DEPLOYMENTS, foreign_deployment(), CONTROLLER)
    term.bench.rest.holds_back = set()
    await step(term, 2)
    assert admitted(term)[:2] == ("False", "NameTaken")
    await step(term)
    assert not any(name.startswith("aaa") for name in names(term, PODS))


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("pod", ["aaa-trainer-0", "aaa-trainer-7"])
async def test_pods_that_somebody_forges_for_a_suspended_job_hold_up_nobody(pod, is_tied):
    """It does not start, whoever binds what in its name."""
    term = Term()
    job = add_job(term.server, small(runPolicy={"suspend": True}))
    forge_pod(term, job, pod, is_tied=is_tied)
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)


async def test_a_pod_that_nobody_will_ever_bind_holds_up_nobody():
    """Another scheduler's, or behind a gate that its owner never lifts."""
    term = Term()
    gated = template(cpu="1", spec={"schedulingGates": [{"name": "mine"}]})
    body = raw_job("aaa", trainer={"minReplicas": 1, "maxReplicas": 1, "template": gated})
    add_job(term.server, body)
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)


class Faulty(ApiDecorator):
    """EDL meets a fault of its own where it makes the master of one job."""

    async def create(self, kind, body):
        if kind == DEPLOYMENTS and body["metadata"]["name"] == "aaa-master":
            raise RuntimeError("a fault")
        return await super().create(kind, body)


async def test_a_start_whose_last_step_fails_ends_all_the_same():
    """While the step pauses its gang is still looked at: the room comes back within the usual limit (A11)."""
    term = Term(around=lambda bench: Faulty(bench.api))
    add_job(term.server, small())
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)
    assert "aaa-trainer-0" in names(term, PODS)
    await step(term, int(START_LIMIT_S))
    assert "aaa-trainer-0" not in names(term, PODS)
    assert term.leading.cluster.start_backoff(OTHER).lost_races == 1


async def test_a_job_that_was_refused_is_tried_again_as_soon_as_it_is_edited():
    """Its owner has put right what the server refused, and waits for no pause of the wrong one."""
    term = Term(around=lambda bench: Refusing(bench.api, INVALID, is_late=False))
    add_job(term.server, small())
    for _ in range(200):
        await step(term)
        if term.leading.cluster.start_backoff(OTHER).refusals == 5:
            break
    await step(term, 11)
    assert term.leading.cluster.start_backoff(OTHER).hold_until_s > term.bench.now_s + 100.0
    assert admitted(term)[:2] == ("False", "PodInvalid")
    term.api.error = None
    before = term.server.get(TRAINING_JOBS, "team-a", "aaa")
    metadata = before["metadata"] | {"generation": before["metadata"]["generation"] + 1}
    term.server.rewrite(TRAINING_JOBS, before, before | {"metadata": metadata})
    await step(term, USUAL_STEPS)
    assert "aaa-master" in names(term, DEPLOYMENTS)
    assert admitted(term)[0] == "True"


@pytest.mark.parametrize(
    "away", [{"runPolicy": {"suspend": True}}, {"mode": "observe"}, {"trainer": {"minReplicas": -1}}]
)
async def test_an_edit_there_and_one_back_lift_no_pause(away):
    """A job that is suspended, observed or invalid for a while has been refused all the same: once in 10 s at most."""
    term = Term(around=lambda bench: Refusing(bench.api, INVALID, is_late=False))
    right = small()["spec"]
    add_job(term.server, small())
    refused_at_s = []
    for number in range(60):
        edit(term, right | away if number % 2 else right)
        await step(term)
        if (race := term.leading.cluster.start_backoff(OTHER)).refused_at_s not in refused_at_s:
            refused_at_s.append(race.refused_at_s)
    assert all(later - before >= 10.0 for before, later in pairwise(refused_at_s) if before)
    assert race.refusals >= 4


async def test_another_job_under_the_old_name_begins_anew():
    """What was refused was another one: its UID says so."""
    term = Term(around=lambda bench: Refusing(bench.api, INVALID, is_late=False))
    add_job(term.server, small())
    await step(term, USUAL_STEPS)
    assert term.leading.cluster.start_backoff(OTHER).refusals == 1
    before = term.server.get(TRAINING_JOBS, "team-a", "aaa")
    term.server.rewrite(TRAINING_JOBS, before, before | {"metadata": before["metadata"] | {"uid": "another"}})
    term.api.error = None
    await step(term, USUAL_STEPS)
    assert "aaa-master" in names(term, DEPLOYMENTS)


def edit(term, spec):
    before = term.server.get(TRAINING_JOBS, "team-a", "aaa")
    metadata = before["metadata"] | {"generation": before["metadata"]["generation"] + 1}
    term.server.rewrite(TRAINING_JOBS, before, before | {"metadata": metadata, "spec": spec})


async def test_a_fault_with_a_refused_jobs_gang_lifts_no_pause(monkeypatch):
    """What was remembered of it is not forgotten because one look at it fails (A11)."""
    term = Term(around=lambda bench: Refusing(bench.api, INVALID, is_late=False))
    add_job(term.server, small())
    await step(term, USUAL_STEPS)
    before = term.leading.cluster.start_backoff(OTHER)
    assert before.refusals == 1

    def look(pods, job):
        if job.key == OTHER:
            raise ZeroDivisionError
        return real(pods, job)

    real = GangPods.observe
    monkeypatch.setattr(GangPods, "observe", look)
    await step(term)
    assert term.leading.errors.fails(OTHER, GuardedTask.GANG)
    assert term.leading.cluster.start_backoff(OTHER) == before


class NoDryRun(ApiDecorator):
    """An API server with a webhook that has side effects."""

    async def check_create(self, kind, body):
        name = body["metadata"]["name"]
        raise BadRequestError(f'create {kind.plural} {name}: admission webhook "x" does not support dry run')


async def test_where_nothing_can_be_tried_the_writes_themselves_are_the_question():
    term = Term(around=lambda bench: NoDryRun(bench.api))
    await step(term, USUAL_STEPS)
    assert "digits-master" in names(term, DEPLOYMENTS)


async def test_a_running_job_whose_master_is_refused_keeps_its_pods_and_waits():
    """Somebody deleted it, and a quota keeps it from coming back: what trains is left alone (M9)."""
    term = Term(around=lambda bench: Refusing(bench.api, None, is_late=False))
    add_job(term.server, small())
    await step(term, 2 * USUAL_STEPS)
    term.api.error = QUOTA
    term.server.delete(DEPLOYMENTS, "team-a", "aaa-master")
    await step(term, int(2 * START_LIMIT_S))
    assert "aaa-trainer-0" in names(term, PODS)
    assert admitted(term) == ("False", "Quota", str(QUOTA))
    term.api.error = None
    await step(term, 45)
    assert "aaa-master" in names(term, DEPLOYMENTS)
