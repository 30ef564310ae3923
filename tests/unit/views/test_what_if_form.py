"""The form of what-if questions: what it asks for, and which field is wrong."""

import pytest

from autoscaler.domain import Resources, Shape, Workload, WorkloadName
from autoscaler.page.content.planner_questions import what_if_of
from autoscaler.planner.counterfactual import PlanInputs
from autoscaler.views.planning.what_if_form import apply_changes, read_form
from tests.harness.page_cluster import snapshot_of_job


@pytest.fixture
def inputs():
    snapshot = snapshot_of_job(nodes=2)
    shape = Shape(requests=Resources(cpu_milli=1000, memory_bytes=2**20))
    web = Workload(name=WorkloadName("team/web"), shape=shape, priority=0, desired_replicas=0)
    return PlanInputs(view=snapshot.view.evolve(workloads=[web]), policy=snapshot.policy, now_s=snapshot.now_s)


def test_an_empty_form_asks_for_nothing(inputs):
    changes, problems = read_form({"cpu": "4", "memory": "16Gi", "deployment": "", "replicas": ""}, inputs)
    assert changes.is_empty
    assert problems == ()


def test_all_changes_are_made_and_told(inputs):
    form = {"remove": "node-1", "deployment": "team/web", "replicas": "3", "add": "2", "cpu": "8", "memory": "16Gi"}
    changes, problems = read_form(form, inputs)
    changed, words = apply_changes(inputs, changes)
    assert problems == ()
    assert words == ["node-1 gone", "2 more nodes of 8 cpu, 16Gi memory", "3 replicas of team/web"]
    assert len(changed.view.nodes) == 3
    assert changed.view.workloads[0].desired_replicas == 3


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"remove": "node-9"}, "remove"),
        ({"deployment": "team/none", "replicas": "3"}, "deployment"),
        ({"deployment": "team/web", "replicas": "many"}, "replicas"),
        ({"deployment": "team/web", "replicas": "99999999"}, "replicas"),
        ({"replicas": "9"}, "deployment"),
        ({"replicas": "9", "idle": "on"}, "deployment"),
        ({"idle": "true"}, "idle"),
        ({"job_min": "0", "job_max": "0"}, "job_max"),
        ({"add": "-1"}, "add"),
        ({"add": "1000000", "cpu": "1", "memory": "1Gi"}, "add"),
        ({"add": "1", "cpu": "<b>", "memory": "1Gi"}, "cpu"),
        ({"add": "1", "cpu": "1"}, "cpu"),
        ({"add": "1", "cpu": "1", "memory": "9" * 400}, "memory"),
        ({"job_min": "2", "job_max": "1", "job_cpu": "1", "job_memory": "1Gi"}, "job_max"),
        ({"job_max": "4", "job_cpu": "1", "job_memory": "1Gi"}, "job_max"),
        ({"job_min": "1", "job_max": "4", "job_memory": "1Gi"}, "job_cpu"),
        ({"job_min": "1", "job_max": "9999", "job_cpu": "1", "job_memory": "1Gi"}, "job_max"),
        ({"job_min": "1", "job_max": "4", "job_cpu": "1", "job_memory": "x"}, "job_memory"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_asked_of_it(inputs, form, field):
    _, problems = read_form(form, inputs)
    assert field in dict(problems)


@pytest.mark.parametrize(
    ("field", "written", "most"),
    [("cpu", "2000", "1000"), ("memory", "2Ei", "1Pi"), ("replicas", "10001", "10000"), ("job_max", "1001", "1000")],
)
def test_what_is_too_much_is_told_in_the_unit_of_its_field(inputs, field, written, most):
    """Of cores, and not of thousandths of them."""
    form = {"deployment": "team/web", "add": "1", "cpu": "1", "memory": "1Gi", "job_min": "", field: written}
    assert dict(read_form(form, inputs)[1])[field] == f"at most {most}"


def test_another_job_is_one_more_of_the_class_that_most_have(inputs):
    """Under a name that is free, and with what it needs beside its trainers."""
    form = {"job_min": "2", "job_max": "3", "job_cpu": "500m", "job_memory": "1Gi", "job_gpu": ""}
    changes, problems = read_form(form, inputs)
    changed, words = apply_changes(inputs, changes)
    assert problems == ()
    assert words == ["another job of 2 to 3 trainers of 500m cpu, 1Gi memory"]
    (old,) = inputs.view.jobs
    new = next(job for job in changed.view.jobs if job.name != old.name)
    assert (new.trainer.min_replicas, new.trainer.max_replicas, new.priority) == (2, 3, old.priority)
    found = what_if_of(inputs, changes, lambda: 0.0)
    sizes = {row["name"]: (row["before"], row["after"]) for row in found.answer["jobs"]}
    assert sizes[f"tj/{new.name}"] == (None, 3)
    again, _ = apply_changes(changed, changes)
    assert len(again.view.jobs) == 3
