"""One term of a leader, put together and moved by hand on an API server in memory: loop, lives, status, metrics."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE, Subresource
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, LIMIT_RANGES, PODS, PRIORITY_CLASSES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.cluster_view import NEVER_S
from autoscaler.clusters.kubernetes.gangs.start_backoff import record_refusal
from autoscaler.domain import JobState, Policy, Reclaim
from autoscaler.fault_isolation import object_key
from autoscaler.operator.metrics import ERRORS_KEPT_S, Metrics
from autoscaler.operator.notices.due_notices import NoticeRule
from autoscaler.operator.notices.notice_settings import NoticeSettings, WebhookSettings
from tests.unit.clusters.kubernetes.fake_controllers import add_job
from tests.unit.clusters.kubernetes.raw_objects import condition, raw_job, template
from tests.unit.operator.bench import JOB
from tests.unit.operator.term import Term


async def test_a_job_starts_and_its_status_tells_it():
    term = Term()
    await term.step(12)
    assert term.told("Admitted") == ("True", "Started")
    assert term.told("Ready") == ("True", "AllReady")
    assert term.told("Scaled") == ("True", "Max")
    assert term.status()["trainers"]["ready"] == 4
    assert term.status()["resizes"][-1]["from"] == 0
    assert "Started" in term.reasons()
    assert 'edl_job_trainers{job="digits",namespace="team-a",state="ready"} 4.0' in term.metrics.render().decode()


async def test_a_mistake_in_a_template_is_told_once_by_condition_and_event():
    """With the field and the right name; and again when it is another mistake (ADR 0161)."""
    term = Term(job={"trainer": {"minReplicas": 2, "maxReplicas": 4, "template": template(spec={"nodeSelectr": {}})}})
    await term.step(5)
    words = "spec.trainer.template.spec.nodeSelectr: unknown field (did you mean nodeSelector?)"
    assert term.told("Admitted") == ("False", "InvalidSpec")
    assert [note for reason, note in term.notes() if reason == "InvalidSpec"] == [words]
    assert term.server.all(PODS) == []
    term.bench.edit(trainer={"minReplicas": 2, "maxReplicas": 4, "template": template(spec={"affinity": "here"})})
    await term.step(5)
    notes = [note for reason, note in term.notes() if reason == "InvalidSpec"]
    assert len(notes) == 2
    assert notes[1].startswith("spec.trainer.template.spec.affinity: is 'here'")


async def test_a_scrape_shows_the_last_view_and_builds_none():
    """What has changed since is left to whoever builds the next view; before the first there is no room to show."""
    term = Term()
    term.leading.export_metrics()
    assert "edl_cluster_nodes{" not in term.metrics.render().decode()
    await term.step(12)
    view = term.leading.cluster.view()
    listing = await term.bench.api.list(PODS, EVERYWHERE)
    gone = replace(listing, items=(), resource_version=str(int(listing.resource_version) + 1))
    term.leading.cache.apply_listing(PODS, gone, requested_at_s=term.bench.now_s)
    term.leading.export_metrics()
    assert 'edl_cluster_nodes{state="open"}' in term.metrics.render().decode()
    assert term.leading.cluster.views.last is view
    assert PODS in term.leading.cache.pop_changes()


async def test_notices_that_wait_or_are_lost_are_counted_and_logged(tmp_path, caplog):
    """Nobody would know that a channel says less than what happens."""
    rule = NoticeRule(burst=0)
    settings = NoticeSettings(webhook=WebhookSettings(address_file=tmp_path / "address"), rule=rule)
    term = Term(notices=settings, spec={"runPolicy": {"activeDeadlineSeconds": 5}})
    await term.step(20)
    assert term.told("Failed") == ("True", "DeadlineExceeded")
    for held_back, lost in ((1, 0), (0, 1), (0, 1)):
        term.leading.notices.look()
        term.leading.export_metrics()
        lines = term.metrics.render().decode().splitlines()
        assert {f"edl_notices_held_back {held_back:.1f}", f"edl_notices_lost {lost:.1f}"} <= set(lines)
        term.bench.now_s += rule.news_s
    assert "notices held back, because the limit lets no more go: 1" in caplog.text
    assert caplog.text.count("notice JobFailed of team-a/digits is lost") == 1


async def test_what_stands_is_not_written_again():
    term = Term()
    await term.step(12)
    before = term.server.history.version
    await term.step(20)
    assert term.server.history.version == before


async def test_a_preempted_trainer_is_put_down_to_the_scheduler():
    term = Term()
    await term.step(12)
    raw = term.server.get(PODS, "team-a", "digits-trainer-3")
    disrupted = condition("DisruptionTarget", "True", reason="PreemptionByScheduler")
    conditions = [*raw["status"]["conditions"], disrupted]
    term.server.rewrite(PODS, raw, raw | {"status": raw["status"] | {"conditions": conditions}})
    await term.bench.api.delete(PODS, "digits-trainer-3", namespace="team-a")
    await term.watch()
    await term.leading.jobs.reconcile(JOB)
    await term.step()
    newest = next(one for one in term.status()["resizes"] if one["by"] == "scheduler")
    assert (newest["from"], newest["to"], newest["cause"]) == (4, 3, "Preempted")
    assert "Preempted" in term.reasons()
    assert 'edl_pod_terminations_total{cause="scheduler",role="trainer"} 1.0' in term.metrics.render().decode()


async def test_a_trainer_that_somebody_deletes_while_its_job_waits_after_a_lost_race_is_put_down_to_them():
    """What EDL takes away of a running job for its room is a pod without a node; this one has one."""
    term = Term()
    await term.step(12)
    gangs = term.leading.cluster._gangs
    gangs.starts = record_refusal(gangs.starts, JOB, term.bench.now_s, "", generation=1)
    await term.bench.api.delete(PODS, "digits-trainer-3", namespace="team-a")
    await term.watch()
    await term.leading.jobs.reconcile(JOB)
    await term.step()
    newest = next(one for one in term.status()["resizes"] if one["from"] == 4)
    assert (newest["by"], newest["cause"]) == ("user", "Deleted")
    assert "CapacityLost" not in term.reasons()


async def test_without_its_classes_edl_creates_nothing_and_says_why():
    """Surplus that ranks above the cluster's default would take web pods' room (rule 3)."""
    term = Term()
    for name in ("edl-core", "edl-surplus-3"):
        await term.bench.api.delete(PRIORITY_CLASSES, name)
    await term.step(5)
    assert term.server.all(PODS) == []
    assert term.told("Admitted")[1] in {"PriorityClassMissing", "PriorityClasses"}
    [job] = term.leading.cluster.view().jobs
    assert (job.state, job.hold_until_s) == (JobState.ACTIVE, NEVER_S)


@pytest.mark.parametrize(
    ("reclaim", "value", "has_started"),
    [
        (Reclaim.SCHEDULER, -1, False),
        (Reclaim.SCHEDULER, 0, True),
        (Reclaim.PLANNER, -1, False),
        (Reclaim.PLANNER, 0, True),
    ],
)
async def test_a_class_that_does_not_rank_above_surplus_starts_nothing_and_is_told(reclaim, value, has_started):
    """Its core would be the first victim, after which others' surplus goes on."""
    term = Term(policy=Policy(reclaim=reclaim), job={"priorityClassName": "humble"})
    humble = {"metadata": {"name": "humble"}, "value": value, "preemptionPolicy": "Never"}
    await term.bench.api.create(PRIORITY_CLASSES, humble)
    await term.step(5)
    assert bool(term.server.all(PODS)) is has_started
    assert (term.told("Admitted") == ("False", "PriorityClassTooLow")) is not has_started


async def test_a_quota_over_one_class_is_not_run_against_with_every_plan():
    """It binds surplus; core comes and goes as before.  The job says so, and grows once it may."""
    asked = []

    def refuse(kind, wanted, _before):
        if kind == PODS and wanted["spec"].get("priorityClassName", "").startswith("edl-surplus"):
            asked.append(term.bench.now_s)
            raise ForbiddenError("exceeded quota: surplus, requested: pods=1", RefusedBy.QUOTA)

    term = Term()
    term.server.admissions = (*term.server.admissions, refuse)
    await term.step(40)
    assert term.status()["trainers"]["ready"] == 2
    assert term.told("Scaled") == ("False", "Quota")
    assert len(asked) <= 4
    await term.bench.api.delete(PODS, "digits-trainer-0", namespace="team-a", grace_s=0)
    await term.step(3)
    assert term.status()["trainers"]["ready"] == 2
    term.server.admissions = term.server.admissions[:-1]
    await term.step(45)
    assert term.told("Scaled") == ("True", "Max")


def limit_range(**line):
    return {"metadata": {"name": "range", "namespace": "team-a"}, "spec": {"limits": [{"type": "Container", **line}]}}


async def test_a_plan_counts_what_limit_ranges_fill_in():
    """Ephemeral storage that no template names: without it more trainers would fit, and none of the last would come."""
    term = Term()
    await term.bench.api.create(LIMIT_RANGES, limit_range(defaultRequest={"example.com/thing": "1"}))
    await term.step(6)
    assert term.server.all(PODS) == []
    assert term.told("Admitted")[0] == "False"
    assert "example.com/thing" in next(one["message"] for one in term.status()["conditions"])


async def test_pods_that_a_limit_range_forbids_are_not_tried_and_the_job_says_why():
    """Its trainers stand; the range comes, then goes: nothing is lost, and it grows on."""
    term = Term()
    await term.step(2)
    before = len(term.server.all(PODS))
    assert before
    await term.bench.api.create(LIMIT_RANGES, limit_range(min={"cpu": "2"}))
    await term.bench.api.delete(PODS, "digits-trainer-0", namespace="team-a", grace_s=0)
    await term.step(6)
    assert {one["metadata"]["name"] for one in term.server.all(PODS)} & {"digits-trainer-0"} == set()
    assert term.told("Scaled") == ("False", "LimitRange")
    message = next(one["message"] for one in term.status()["conditions"] if one["type"] == "Scaled")
    assert message.startswith("spec.")
    assert "below the minimum, 2 (LimitRange range)" in message
    await term.bench.api.delete(LIMIT_RANGES, "range", namespace="team-a")
    await term.step(12)
    assert term.told("Scaled") == ("True", "Max")


@pytest.mark.parametrize("how", ["freeze", "observe"])
async def test_what_is_only_shown_is_not_done(how):
    policy = Policy(reclaim=Reclaim.SCHEDULER, is_frozen=True) if how == "freeze" else None
    term = Term(policy=policy, spec={"mode": "observe"} if how == "observe" else None)
    await term.step(6)
    assert term.server.all(PODS) == term.server.all(DEPLOYMENTS) == []
    assert term.told("Admitted") == ("False", "Observed")
    assert "starts with" in next(one["message"] for one in term.status()["conditions"] if one["type"] == "Admitted")


async def test_no_room_is_kept_for_a_job_that_is_only_observed():
    """It has by far the larger share to ask for: its neighbour waited for ever for the other half of the cluster."""
    term = Term(spec={"mode": "observe", "weight": 10_000})
    pod = template(cpu="1")
    sizes = {"minReplicas": 2, "maxReplicas": 12, "template": pod}
    add_job(term.server, raw_job("neighbour", trainer=sizes, master={"template": template(cpu="1")}))
    await term.step(30)
    trainers = [raw for raw in term.server.all(PODS) if "neighbour-trainer" in raw["metadata"]["name"]]
    assert len(trainers) == 12
    assert term.told("Admitted") == ("False", "Observed")
    assert term.bench.pods("digits") == set()


async def test_what_is_only_observed_gives_nothing_either():
    """The web's room is planned of others, who do give it."""
    term = Term()
    await term.step(12)
    term.bench.edit(mode="observe")
    await term.step(2)
    [job] = term.leading.cluster.view().jobs
    assert (job.trainer.min_replicas, job.trainer.max_replicas, job.hold_until_s) == (4, 4, NEVER_S)
    assert term.leading.cluster.views.jobs.observed[JOB].trainer.min_replicas == 2
    term.bench.edit(mode="manage")
    await term.step(2)
    [job] = term.leading.cluster.view().jobs
    assert (job.trainer.min_replicas, job.hold_until_s) == (2, 0.0)


@pytest.mark.parametrize("how", ["freeze", "observe"])
async def test_what_has_begun_stands_still_where_nothing_is_written(how):
    """No master comes back and no pod that waits for its node goes, while EDL only looks (rule 20)."""
    term = Term()
    await term.step(12)
    term.bench.rest.holds_back = {"digits-trainer-1"}
    await term.bench.api.delete(PODS, "digits-trainer-1", namespace="team-a", grace_s=0)
    await term.step(2)
    await term.bench.api.delete(DEPLOYMENTS, "digits-master", namespace="team-a")
    if how == "freeze":
        term.policy = Policy(reclaim=Reclaim.SCHEDULER, is_frozen=True)
        term.lead()
    else:
        term.bench.edit(mode="observe")
    names = {raw["metadata"]["name"] for raw in term.server.all(PODS)}
    await term.step(15)
    assert term.server.all(DEPLOYMENTS) == []
    assert {raw["metadata"]["name"] for raw in term.server.all(PODS)} == {
        name for name in names if "-master" not in name
    }


async def test_a_job_that_cannot_be_read_says_so():
    term = Term(job={"checkpoint": {"uri": ""}})
    await term.step(2)
    assert term.told("Admitted") == ("False", "InvalidSpec")
    assert term.server.all(PODS) == []


def series_of_job(metrics):
    """The names of the metrics that tell of the job."""
    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    return {one.name for one in samples if one.labels.get("job") == "digits" and not one.name.endswith("_created")}


def conditions_of_job(metrics):
    """Type, status and reason of each condition that is told of the job."""
    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    told = [one.labels for one in samples if one.name == "edl_job_condition" and one.labels["job"] == "digits"]
    return [(one["type"], one["status"], one["reason"]) for one in told]


async def test_a_job_that_can_no_longer_be_read_leaves_no_old_numbers():
    """Alerts would fire on how it stood; why it is not read, and that EDL fails at it, is told (A11)."""
    term = Term()
    await term.step(12)
    term.metrics.count_error(JOB, "read", term.bench.now_s)
    assert {"edl_job_trainers", "edl_job_condition", "edl_job_checkpoint_every_seconds"} <= series_of_job(term.metrics)
    term.bench.edit(checkpoint={"uri": ""})
    await term.step(2)
    assert term.told("Admitted") == ("False", "InvalidSpec")
    assert series_of_job(term.metrics) == {"edl_job_condition", "edl_job_errors_total"}
    assert conditions_of_job(term.metrics) == [("Admitted", "False", "InvalidSpec")]


async def test_a_job_whose_status_cannot_be_made_leaves_no_old_numbers(monkeypatch):
    """Likewise where its status cannot be made: that is all that is known."""
    term = Term()
    await term.step(12)

    def fail(_job):
        raise ValueError("planted")

    monkeypatch.setattr(term.leading.store, "problems_of", fail)
    term.bench.edit(weight=7)
    await term.step(2)
    assert series_of_job(term.metrics) == {"edl_job_condition", "edl_job_errors_total"}
    assert conditions_of_job(term.metrics) == [("Scaled", "False", "InternalError")]


def test_errors_of_objects_that_are_gone_are_told_for_an_hour():
    """Nobody says that such an object is gone; one that goes on failing is told on (A11)."""
    metrics = Metrics()
    metrics.count_error(object_key("deployments", "team-a", "web"), "read", 10.0)
    metrics.count_error(JOB, "read", 10.0)
    metrics.count_error(JOB, "read", 20.0)
    metrics.forget_errors(10.0 + ERRORS_KEPT_S - 1.0)
    assert "deployments/web" in metrics.render().decode()
    metrics.forget_errors(10.0 + ERRORS_KEPT_S)
    assert "deployments/web" not in metrics.render().decode()
    assert series_of_job(metrics) == {"edl_job_errors_total"}


async def test_each_pass_forgets_old_errors():
    """Those of a job that failed once more after it was gone, for one."""
    term = Term()
    term.metrics.count_error(JOB, "close", term.bench.now_s - ERRORS_KEPT_S)
    await term.step(2)
    assert "edl_job_errors_total" not in series_of_job(term.metrics)


async def test_a_job_that_is_gone_is_forgotten():
    term = Term()
    await term.step(12)
    await term.bench.api.delete(TRAINING_JOBS, "digits", namespace="team-a")
    await term.watch()
    await term.leading.jobs.reconcile(JOB)
    assert term.leading.store.records == {}
    assert "digits" not in term.metrics.render().decode()


async def test_a_status_wiped_by_somebody_comes_back():
    term = Term()
    await term.step(12)
    before = term.status()
    await term.bench.api.patch(
        TRAINING_JOBS, "digits", {"status": None}, namespace="team-a", subresource=Subresource.STATUS
    )
    await term.step(2)
    assert term.status()["trainers"] == before["trainers"]
    assert term.told("Completed") == ("False", "NotCompleted")
