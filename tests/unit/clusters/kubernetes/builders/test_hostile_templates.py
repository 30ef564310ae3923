"""Templates that the definition lets pass, with a value of every odd kind in every field: refused, or built (A11).

A template is free-form to the API server, so whoever may write a TrainingJob chooses every value in it.
"""

import copy

import pytest

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job, shapes_of
from autoscaler.domain import Cause, CreatePod, Role, Tier
from autoscaler.errors import InvalidSpecError
from tests.unit.clusters.kubernetes.raw_objects import raw_job, template

LONG = "9" * 5000
LONGEST = 1000
NODE_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
ODD = (
    *(None, 0, -1, 1.5, True, "", "x", LONG, f"1e{LONG}", [], [1], ["x"], [[]], [{}], [None], {}, {"a": 1}),
    *({"a": [1]}, {"cpu": LONG}, {"cpu": f"1e{LONG}"}, {"cpu": []}, {"cpu": {"a": 1}}, [{"name": ["x"]}]),
    *([{"name": {}}], [{"containerPort": [1]}], [{"containerPort": {}}], {"add": 5}, {"runAsUser": [0]}),
    [{"key": [1], "operator": ["In"], "values": "x"}],
    {"nodeAffinity": {NODE_TERMS: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "values": [{}]}]}]}}},
    {"nodeAffinity": {NODE_TERMS: {"nodeSelectorTerms": "x"}}},
    {"podAffinity": {NODE_TERMS: [{"namespaces": 5}]}},
    *({"requests": {"cpu": value}} for value in (LONG, f"1e{LONG}", [], True, 10**400)),
    {"requests": []},
)
OF_PODS = (
    *("affinity", "nodeSelector", "overhead", "securityContext", "serviceAccountName", "imagePullSecrets"),
    *("topologySpreadConstraints", "runtimeClassName", "schedulerName", "restartPolicy", "dnsConfig"),
    *("initContainers", "ephemeralContainers", "volumes", "tolerations", "containers", "resources"),
    "terminationGracePeriodSeconds",
)
OF_CONTAINERS = (
    *("ports", "env", "envFrom", "volumeMounts", "securityContext", "livenessProbe", "restartPolicy", "lifecycle"),
    *("resources", "name", "image", "command", "args", "resizePolicy"),
)
SETTINGS = BuildSettings(image="edl:1", etcd=EtcdAccess(endpoints="http://etcd:2379"))


def job_with_own_master():
    pod = template(cpu="1")
    raw = raw_job(trainer={"minReplicas": 1, "maxReplicas": 2, "template": pod}, server={"template": pod})
    raw["spec"]["master"] = {"template": template("master", cpu="1")}
    return copy.deepcopy(raw)


def read_and_build(raw):
    job = parse_job(raw)
    shapes_of(job)
    for role in (Role.TRAINER, Role.SERVER):
        placement = CreatePod(job=job.key, role=role, ordinal=0, node="n1", tier=Tier.CORE, cause=Cause.START)
        build_pod(job, placement, SETTINGS, is_gated=True)
    build_master(job, SETTINGS)
    return job.refusal


def problems_of(role, holder_of, field):
    """What but a refusal comes of odd values in the field."""
    found = []
    for value in ODD:
        raw = job_with_own_master()
        holder_of(raw["spec"][role]["template"]["spec"])[field] = copy.deepcopy(value)
        try:
            told = read_and_build(raw)
        except InvalidSpecError as error:
            told = str(error)
        except Exception as error:  # noqa: BLE001 - all of them are told at once
            told = f"{error!r:.1000}" + " " * 1000
        if len(told) >= LONGEST:  # the words of a refusal have a length
            found.append(f"{str(value)[:60]}: {told[:120]}")
    return found


def test_job_as_it_is_meant_is_built():
    """The case from which all others differ by one value."""
    assert read_and_build(job_with_own_master()) == ""


@pytest.mark.parametrize("role", ["trainer", "parameterServer", "master"])
@pytest.mark.parametrize("field", OF_PODS)
def test_odd_value_of_a_pod_is_refused_or_built(role, field):
    """Never another exception: what the operator meets in one job ends nothing (A11)."""
    assert problems_of(role, lambda spec: spec, field) == []


@pytest.mark.parametrize("role", ["trainer", "parameterServer", "master"])
@pytest.mark.parametrize("field", OF_CONTAINERS)
def test_odd_value_of_a_container_is_refused_or_built(role, field):
    """A port whose number is a list ended the operator once (A11)."""
    assert problems_of(role, lambda spec: spec["containers"][0], field) == []


@pytest.mark.parametrize("role", ["trainer", "parameterServer", "master"])
@pytest.mark.parametrize("field", OF_CONTAINERS)
def test_odd_value_of_an_init_container_is_refused_or_built(role, field):
    """A request of 5,000 digits there ended the operator once (A11)."""

    def first(spec):
        spec["initContainers"] = [{"name": "first"}]
        return spec["initContainers"][0]

    assert problems_of(role, first, field) == []


@pytest.mark.parametrize("cpu", [LONG, f"1e{LONG}"])
@pytest.mark.parametrize(
    ("put", "path"),
    [
        (lambda spec, cpu: spec.update(overhead={"cpu": cpu}), "overhead.cpu"),
        (
            lambda spec, cpu: spec.update(initContainers=[{"name": "i", "resources": {"requests": {"cpu": cpu}}}]),
            "initContainers[0].resources.requests.cpu",
        ),
    ],
)
def test_quantity_of_5000_digits_is_refused_by_its_path(cpu, put, path):
    """The refusal names the field and shows the beginning of what stands there (A11)."""
    raw = job_with_own_master()
    put(raw["spec"]["trainer"]["template"]["spec"], cpu)
    with pytest.raises(InvalidSpecError, match="characters, and 64 is the most") as refused:
        parse_job(raw)
    assert refused.value.path == f"spec.trainer.template.spec.{path}"
    assert len(str(refused.value)) < 300
