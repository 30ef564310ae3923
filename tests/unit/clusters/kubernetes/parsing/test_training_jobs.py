"""TrainingJobs as the API server has them: what is accepted, and what is refused by the field's path."""

import pytest

from autoscaler.clusters.kubernetes.parsing.training_jobs import has_devices, parse_job, to_planner_job
from autoscaler.domain import JobState, Role
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests.api_types import Mode
from tests.unit.clusters.kubernetes.raw_objects import CREATED_S, UID, kube_job, raw_job, template


def test_job_is_read_with_its_defaults():
    """One set of rules with the files of `edl run`."""
    job = kube_job()
    assert (job.key, job.uid, job.generation, job.is_deleting) == ("team-a/digits", UID, 3, False)
    assert (job.spec.weight, job.spec.priority_class, job.spec.mode) == (100, "edl-core", Mode.MANAGE)
    assert (job.spec.trainer.step, job.spec.run_policy.backoff_limit, job.spec.master.replicas) == (1, 6, 1)
    assert job.roles == (Role.MASTER, Role.TRAINER)


MEMORY = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("asks", "has_some"),
    [
        (template(), False),
        (template(resources={"limits": MEMORY | {"hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}}), False),
        (template(resources={"limits": MEMORY | {"nvidia.com/gpu": "1"}}), True),
        (template(resources={"limits": MEMORY | {"nvidia.com/mig-1g.10gb": "1"}}), True),
        (template(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}), True),
    ],
)
def test_devices_are_asked_for_by_number_in_parts_or_by_claim(asks, has_some):
    """Whoever asks for none of them computes on the processor."""
    job = kube_job(trainer={"minReplicas": 1, "maxReplicas": 2, "template": asks})
    assert has_devices(job, Role.TRAINER) is has_some


def test_planner_gets_listed_sizes():
    found = to_planner_job(kube_job(trainer={"sizes": [2, 3, 8]}, group={"globalBatch": 64}), priority=0)
    assert (found.trainer.sizes, found.trainer.step) == ((2, 3, 8), 1)


def test_planner_gets_the_job():
    """Sizes, shapes and the instant of submission on the cluster's clock."""
    raw = raw_job(server={"minReplicas": 2, "maxReplicas": 3}, trainer={"replicas": 4}, runPolicy={"suspend": True})
    found = to_planner_job(parse_job(raw), priority=7, offset_s=-CREATED_S)
    assert (found.name, found.namespace, found.priority, found.submitted_at_s) == ("team-a/digits", "team-a", 7, 0.0)
    assert (found.trainer.min_replicas, found.trainer.max_replicas, found.trainer.pinned_replicas) == (2, 8, 4)
    assert (found.servers.min_replicas, found.servers.max_replicas) == (2, 3)
    assert found.state is JobState.SUSPENDED


@pytest.mark.parametrize(("copies", "is_apart"), [(1, False), (2, True)])
def test_planner_hears_of_two_copies(copies, is_apart):
    """Then servers rather stand on different nodes (ADR 0318)."""
    raw = raw_job(server={"minReplicas": 2, "maxReplicas": 3, "copies": copies})
    assert to_planner_job(parse_job(raw), priority=0).servers.prefers_anti_affinity is is_apart


def test_master_without_a_template_reaches_what_the_trainers_reach():
    """Its checkpoints lie on the trainers' volumes; their devices are not taken over."""
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    trainer = template(
        volumeMounts=mounts,
        resources={"requests": {"cpu": "8", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}},
        spec={"volumes": [{"name": "shared", "nfs": {"server": "nas", "path": "/"}}], "nodeSelector": {"gpu": "a100"}},
    )
    job = kube_job(trainer={"template": trainer})
    own = job.template(Role.MASTER).own_container
    assert own["volumeMounts"] == mounts
    assert job.template(Role.MASTER).spec["volumes"][0]["name"] == "shared"
    planned = to_planner_job(job, priority=0)
    assert (planned.master.shape.requests.gpu_count, planned.master.shape.requests.cpu_milli) == (0, 100)
    assert not planned.master.shape.node_selector


def bad_template(**spec):
    return {"template": template(spec=spec)}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"trainer": {"minReplicas": 9}}, "spec.trainer.minReplicas"),
        ({"trainer": {"minReplicas": 0}}, "spec.trainer.minReplicas"),
        ({"trainer": {"minReplicas": -1}}, "spec.trainer.minReplicas"),
        ({"trainer": {"minReplicas": 1.5}}, "spec.trainer.minReplicas"),
        ({"trainer": {"minReplicas": None}}, "spec.trainer.minReplicas"),
        ({"trainer": {"maxReplicas": 2**31}}, "spec.trainer.maxReplicas"),
        ({"trainer": {"maxReplicas": "8x"}}, "spec.trainer.maxReplicas"),
        ({"trainer": {"replicas": 9}}, "spec.trainer.replicas"),
        ({"trainer": {"step": 0}}, "spec.trainer.step"),
        ({"trainer": {"step": 2, "powersOfTwo": True}}, "spec.trainer.step"),
        ({"trainer": {"perNode": 4}}, "spec.trainer.minReplicas"),
        ({"trainer": {"sizes": [2, 4]}}, "spec.trainer.sizes"),
        ({"trainer": {"sizes": [8, 2]}}, "spec.trainer.sizes"),
        ({"trainer": {"sizes": [2, "4", 8]}}, "spec.trainer.sizes[1]"),
        ({"trainer": {"sizes": [2, 8], "powersOfTwo": True}}, "spec.trainer.sizes"),
        ({"trainer": {"sizes": [2, 8], "step": 3}}, "spec.trainer.step"),
        ({"trainer": {"sizes": [2, 8], "replicas": 4}}, "spec.trainer.replicas"),
        ({"group": {}, "server": {}}, "spec.group"),
        ({"group": {"globalBatch": 0}}, "spec.group.globalBatch"),
        ({"group": {"shares": "Fair"}}, "spec.group.shares"),
        ({"group": {"shares": "Measured"}, "trainer": {"minReplicas": 1, "maxReplicas": 1}}, "spec.group.shares"),
        ({"group": None}, "spec.group"),
        ({"trainer": {"speed": 3}}, "spec.trainer.speed"),
        ({"trainer": {"template": {}}}, "spec.trainer.template.spec.containers"),
        ({"trainer": {"template": {"spec": {"containers": "one"}}}}, "spec.trainer.template.spec.containers"),
        ({"trainer": {"template": {"spec": {"containers": [7]}}}}, "spec.trainer.template.spec.containers"),
        ({"trainer": bad_template(nodeName="n1")}, "spec.trainer.template.spec.nodeName"),
        ({"trainer": bad_template(priorityClassName="high")}, "spec.trainer.template.spec.priorityClassName"),
        ({"trainer": bad_template(tolerations="all")}, "spec.trainer.template.spec.tolerations"),
        (
            {"trainer": bad_template(terminationGracePeriodSeconds=0)},
            "spec.trainer.template.spec.terminationGracePeriodSeconds",
        ),
        (
            {"trainer": {"template": template(cpu="half")}},
            "spec.trainer.template.spec.containers[0].resources.requests.cpu",
        ),
        (
            {"trainer": {"template": template(cpu="-1")}},
            "spec.trainer.template.spec.containers[0].resources.requests.cpu",
        ),
        (
            {"trainer": {"template": template(cpu=["1"])}},
            "spec.trainer.template.spec.containers[0].resources.requests.cpu",
        ),
        (
            {"server": {"template": template(resources={"requests": {"cpu": "1"}})}},
            "spec.parameterServer.template.spec.containers[0].resources.requests.memory",
        ),
        ({"server": {"minReplicas": 3}}, "spec.parameterServer.minReplicas"),
        ({"server": {"trainersPerServer": 0}}, "spec.parameterServer.trainersPerServer"),
        ({"server": {"copies": 3}}, "spec.parameterServer.copies"),
        ({"server": {"minReplicas": 1, "maxReplicas": 1, "copies": 2}}, "spec.parameterServer.copies"),
        ({"server": {"trainersPerServer": "fast"}}, "spec.parameterServer.trainersPerServer"),
        ({"master": {"replicas": 0}}, "spec.master.replicas"),
        ({"weight": 0}, "spec.weight"),
        ({"weight": True}, "spec.weight"),
        ({"mode": "watch"}, "spec.mode"),
        ({"checkpoint": {}}, "spec.checkpoint.uri"),
        ({"checkpoint": {"uri": "s3://b/x", "everySeconds": 0}}, "spec.checkpoint.everySeconds"),
        ({"runPolicy": {"backoffLimit": -1}}, "spec.runPolicy.backoffLimit"),
        ({"colour": "red"}, "spec.colour"),
        ({"name": "d" * 300}, "metadata.name"),
        ({"name": "9digits"}, "metadata.name"),
    ],
)
def test_what_an_old_crd_lets_pass_is_refused_by_its_path(fields, path):
    """The operator turns it into a condition that says where and what (bad input, issue 9)."""
    with pytest.raises(InvalidSpecError) as refused:
        kube_job(**fields)
    assert refused.value.path == path


def test_what_is_no_quantity_is_told_without_all_that_it_holds():
    """The words go into a condition and the log, and have a length (A11)."""
    with pytest.raises(InvalidSpecError) as refused:
        kube_job(trainer={"template": template(cpu=["x" * 100_000])})
    assert len(str(refused.value)) < 1_000


def test_requests_of_the_whole_pod_are_requests():
    """Pod-level resources count (rule 12); a limit alone is the request."""
    bare = template(resources={"limits": {"cpu": "2"}}, spec={"resources": {"requests": {"memory": "3Gi"}}})
    requests = to_planner_job(kube_job(trainer={"template": bare}), priority=0).trainer.shape.requests
    assert (requests.cpu_milli, requests.memory_bytes) == (2000, 3 << 30)


def test_spec_that_is_no_mapping_is_refused_too():
    """Whatever stands there, the answer is a path and not a crash."""
    raw = raw_job() | {"spec": 5}
    with pytest.raises(InvalidSpecError) as refused:
        parse_job(raw)
    assert refused.value.path.startswith("spec")
