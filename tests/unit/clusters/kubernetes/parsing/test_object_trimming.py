"""What an operator leaves out of a pod is missed by none of its readers."""

import copy
import json

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Listing
from autoscaler.clusters.kubernetes.api.kinds import LIMIT_RANGES, PODS, RESOURCE_QUOTAS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod, ungate_patch
from autoscaler.clusters.kubernetes.objects.fields import controller_of
from autoscaler.clusters.kubernetes.objects.labels import COMPARE, MASTER_NODES, REPLACES
from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED
from autoscaler.clusters.kubernetes.objects.size_limits import LONGEST, LONGEST_TEMPLATE, is_longer
from autoscaler.clusters.kubernetes.parsing.deployment_objects import parse_workload
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.object_trimming import (
    LONGEST_REQUEST,
    TRIMMERS,
    trim_autoscaler,
    trim_job,
    trim_pod,
    trim_workload,
)
from autoscaler.clusters.kubernetes.parsing.pod_objects import PodContext, deployment_of, gates_of, parse_pod
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.domain import NodeName, Role
from autoscaler.errors import InvalidSpecError
from autoscaler.fault_isolation import JobErrors
from autoscaler.manifests.pod_schema import LONGEST_GRACE_S
from autoscaler.operator.job.job_pods import has_ended, is_gated, is_leaving, is_ready, own_pods
from autoscaler.operator.job.pod_termination import termination_of
from autoscaler.operator.store.job_objects import JobCache
from tests.unit.clusters.kubernetes.raw_objects import (
    CREATED,
    SETTINGS,
    UID,
    as_stored,
    kube_job,
    placement,
    raw_job,
    raw_pod,
    template,
)

CONTEXT = PodContext(jobs={UID: "team-a/digits"}, masters={"team-a/digits-master": UID})
PROBE = {"httpGet": {"path": "/", "port": 80}}
BALLAST = {
    "args": ["--all"],
    "command": ["train"],
    "env": [{"name": f"SETTING_{number}", "value": "x"} for number in range(20)],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "image": "train:1",
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    "livenessProbe": PROBE,
    "ports": [{"containerPort": 80}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
ASKED = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"example.com/gpu": "1"}}
WEB = {"kind": "ReplicaSet", "name": "web-7c9", "controller": True, "uid": "rs"}
CONDITIONS = [
    {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": CREATED}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
]
UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": CREATED}
TAKEN = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
FAILED = {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "no disk"}}}


def own(**fields):
    return (
        as_stored(build_pod(kube_job(server={}), placement(Role.TRAINER, ordinal=3), SETTINGS, is_gated=False)) | fields
    )


def external(*, status=None, owner=WEB, **spec):
    containers = [{"name": "c", "resources": ASKED, **BALLAST}]
    starts = [{"name": "i", "resources": {"requests": {"cpu": "3"}}, "restartPolicy": "Always", **BALLAST}]
    body = {"containers": containers, "initContainers": starts, "volumes": [{"name": "data", "emptyDir": {}}]}
    labels = {"pod-template-hash": "7c9", "app": "web"}
    status = {"conditions": CONDITIONS, "qosClass": "Burstable"} | (status or {})
    return raw_pod(node="n1", owner=owner, labels=labels, status=status, **(body | spec))


def gated():
    pod = as_stored(build_pod(kube_job(), placement(Role.TRAINER), SETTINGS, is_gated=True))
    pod["metadata"]["annotations"] = {MASTER_NODES: "n1,n2", "kubectl.kubernetes.io/last-applied": "{}"}
    return pod


def moving_in():
    return own()["metadata"] | {"annotations": {REPLACES: "digits-server-0/first", "note": "1"}}


PODS_OF_ALL_KINDS = {
    "a web pod": external(),
    "unschedulable": external(status={"phase": "Pending", "conditions": [UNPLACED]}, nodeName=None),
    "tied to a volume": external(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
    "with affinity": external(nodeSelector={"zone": "a"}, tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "of another scheduler": external(schedulerName="other", overhead={"cpu": "100m"}),
    "resized in place": external(
        status={"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "4"}}, "imageID": "x"}]}
    ),
    "a trainer": own(),
    "a trainer that runs": own(status={"phase": "Running", "conditions": CONDITIONS, "podIP": "10.0.0.1"}),
    "a trainer that was taken": own(status={"phase": "Running", "conditions": [*CONDITIONS, TAKEN]}),
    "a trainer that failed": own(status={"phase": "Failed", "containerStatuses": [FAILED]}),
    "a trainer behind its gate": gated(),
    "a server in another's place": own(metadata=moving_in()),
    "nothing but a name": {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}},
}


def told(raw):
    """What every reader finds."""
    end = termination_of(raw, frozenset())
    return {
        "pod": parse_pod(raw, CONTEXT),
        "request": pod_request(raw.get("spec") or {}, raw.get("status") or {}),
        "gates": gates_of(raw),
        "owner": (controller_of(raw), deployment_of(raw)),
        "end": end,
        "own": own_pods(kube_job(), [raw]) == [raw],
        "is": (has_ended(raw), is_gated(raw), is_leaving(raw), is_ready(raw)),
        "master nodes": ((raw["metadata"].get("annotations") or {}).get(MASTER_NODES)),
        "whose place it takes": ((raw["metadata"].get("annotations") or {}).get(REPLACES)),
        "address": (raw.get("status") or {}).get("podIP"),
        "ungated": ungate_patch(raw, "n7") if gates_of(raw) else None,
    }


@pytest.mark.parametrize("kind", PODS_OF_ALL_KINDS)
def test_no_reader_misses_what_is_left_out(kind):
    raw = PODS_OF_ALL_KINDS[kind]
    before = copy.deepcopy(raw)
    slim = trim_pod(raw)
    assert told(slim) == told(raw)
    assert raw == before
    assert trim_pod(slim) == slim


@pytest.mark.parametrize("kind", ["a web pod", "a trainer that runs"])
def test_most_of_a_pod_is_left_out(kind):
    raw = PODS_OF_ALL_KINDS[kind]
    assert len(json.dumps(trim_pod(raw))) < len(json.dumps(raw)) * 0.6


def test_an_unknown_field_stays():
    raw = external(newIn2030={"a": 1})
    raw["spec"]["containers"][0]["newIn2031"] = True
    spec = trim_pod(raw)["spec"]
    assert spec["newIn2030"] == {"a": 1}
    assert spec["containers"][0]["newIn2031"]


def test_the_answer_to_a_write_is_held_without_it_too():
    store = JobCache(JobErrors(lambda: 0.0))
    store.apply_listing(PODS, Listing(items=(), resource_version="1"), requested_at_s=0.0)
    raw = external()
    raw["metadata"]["resourceVersion"] = "7"
    store.put_written(PODS, raw)
    assert store.get(PODS, ("team-a", "web-1")) == trim_pod(raw)


BROKEN = frozenset(NodeName(f"node-{number:03}.{'x' * 240}") for number in range(MOST_AVOIDED))


def zones(count):
    """A job whose pods may stand in any of so many zones, each with a term of its own."""
    lines = [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"z{n}"]} for n in range(count)]
    required = {"nodeSelectorTerms": [{"matchExpressions": [line]} for line in lines]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return raw_job(trainer={"template": template(spec={"affinity": affinity})})


@pytest.mark.parametrize("is_gated", [True, False])
def test_pod_of_a_job_is_held_whole_with_all_that_edl_adds_to_its_terms(is_gated):
    """Held short, it had lost its gate and its node: the gang stood admitted for ever."""
    body = build_pod(parse_job(zones(20)), placement(Role.TRAINER), SETTINGS, is_gated=is_gated, avoid=BROKEN)
    raw = as_stored(body)
    raw["metadata"]["annotations"] = {MASTER_NODES: "n1,n2", REPLACES: "digits-server-0/first"}
    assert is_longer(raw["spec"]["affinity"], 10 * LONGEST)
    assert told(trim_pod(raw)) == told(raw)


def test_job_whose_pods_would_be_held_short_is_refused():
    """At a time when there is no node to avoid yet, and the template itself is short."""
    with pytest.raises(InvalidSpecError) as refused:
        parse_job(zones(60))
    assert refused.value.path == "spec.trainer.template.spec"


BIG = "x" * 100_000
MANY = {f"example.com/{number}": "1" for number in range(10_000)}
LONG = {
    "labels": {"metadata": {"labels": {f"label-{number}": BIG[:60] for number in range(2_000)}}},
    "annotations that are read": {"metadata": {"annotations": {MASTER_NODES: BIG, REPLACES: BIG}}},
    "finalizers": {"metadata": {"finalizers": [f"example.com/{number}" for number in range(20_000)]}},
    "owners": {"metadata": {"ownerReferences": [WEB, *({**WEB, "controller": False} for _ in range(5_000))]}},
    "tolerations": {"spec": {"tolerations": [{"key": f"k{number}"} for number in range(5_000)]}},
    "node selector": {"spec": {"nodeSelector": {f"k{number}": "v" for number in range(5_000)}}},
    "resources": {"spec": {"containers": [{"name": "c", "resources": {"requests": {**MANY, "cpu": "2"}}}]}},
    "containers": {
        "spec": {"containers": [{"name": f"c{n}", "resources": {"requests": {"cpu": "1m"}}} for n in range(2_000)]}
    },
    "claims": {"spec": {"volumes": [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": BIG}} for n in range(9)]}},
    "gates": {"spec": {"schedulingGates": [{"name": f"example.com/{number}"} for number in range(5_000)]}},
    "what nobody knows": {"spec": {"newIn2030": [BIG]}},
    "labels under the prefix of EDL": {"metadata": {"labels": {f"edl.dev/{n}": BIG[:60] for n in range(9_000)}}},
}


def made_long(raw, kind):
    more = LONG[kind]
    return {**raw, **{part: {**raw[part], **fields} for part, fields in more.items()}}


@pytest.mark.parametrize("kind", LONG)
def test_pod_that_is_as_long_as_its_author_likes_is_held_short_and_holds_its_room(kind):
    """Five hundred of a megabyte each were most of an operator's memory, and a restart met them again (A11)."""
    raw = made_long(external(), kind)
    slim = trim_pod(raw)
    assert not is_longer(slim, LONGEST)
    assert len(json.dumps(slim)) < 2 * LONGEST
    full, short = parse_pod(raw, CONTEXT), parse_pod(slim, CONTEXT)
    assert (short.requests.cpu_milli, short.requests.memory_bytes) == (
        full.requests.cpu_milli,
        full.requests.memory_bytes,
    )
    assert (short.node, short.phase, short.workload, short.priority) == (
        full.node,
        full.phase,
        full.workload,
        full.priority,
    )


def test_waiting_pod_that_is_too_long_is_one_for_which_nothing_is_done():
    """Its affinity is not known any more: to make room for it could be in vain."""
    raw = made_long(external(status={"phase": "Pending", "conditions": [UNPLACED]}), "tolerations")
    del raw["spec"]["nodeName"]
    assert not parse_pod(trim_pod(raw), CONTEXT).is_modelled


def deployment(**spec):
    pod = {"containers": [{"name": "c", "resources": ASKED, **BALLAST}]} | spec
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"note": BIG}}, "spec": pod}
    return {
        "metadata": {
            "name": "web",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"note": "x"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": BIG},
        },
        "spec": {"replicas": 7, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {
            "replicas": 5,
            "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": BIG}],
        },
    }


SCALER = {
    "metadata": {"name": "web", "namespace": "n", "annotations": {"note": BIG}},
    "spec": {
        "maxReplicas": 9,
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "metrics": [{"note": BIG}],
    },
    "status": {"desiredReplicas": 8, "currentMetrics": [{"note": BIG}]},
}


def test_no_reader_of_a_deployment_and_its_scaler_misses_what_is_left_out():
    classes = PriorityClasses()
    raw = deployment(nodeSelector={"zone": "a"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    slim = trim_workload(raw)
    assert parse_workload(slim, trim_autoscaler(SCALER), classes) == parse_workload(raw, SCALER, classes)
    assert len(json.dumps([slim, trim_autoscaler(SCALER)])) < 2_000
    assert trim_workload(slim) == slim


def test_deployment_whose_template_is_too_long_announces_pods_that_fit_nowhere():
    raw = deployment(tolerations=[{"key": f"k{number}"} for number in range(5_000)])
    slim = trim_workload(raw)
    assert len(json.dumps(slim)) < LONGEST
    assert not parse_node({"metadata": {"name": "n1"}}).accepts(parse_workload(slim, None, PriorityClasses()).shape)


@pytest.mark.parametrize("field", ["trainer", "master"])
def test_template_that_is_too_long_is_refused_and_not_held(field):
    raw = raw_job()
    long = {**template(), "metadata": {"annotations": {f"note-{number}": BIG for number in range(3)}}}
    raw["spec"][field] = {**raw["spec"].get(field, {}), "template": long}
    raw["metadata"]["annotations"] = {"note": BIG}
    slim = trim_job(raw)
    assert len(json.dumps(slim)) < 5_000
    for one in (slim, raw):
        with pytest.raises(InvalidSpecError) as refused:
            parse_job(one)
        assert refused.value.path == f"spec.{field}.template"
        assert f"{LONGEST_TEMPLATE:,}" in refused.value.problem


def test_template_with_thousands_of_tolerations_is_refused():
    """Each of its pods would say them all again, to every reader."""
    raw = raw_job()
    raw["spec"]["trainer"]["template"]["spec"]["tolerations"] = [{"key": f"k{number}"} for number in range(5_000)]
    with pytest.raises(InvalidSpecError) as refused:
        parse_job(raw)
    assert refused.value.path == "spec.trainer.template.spec"


OLD = {"status": {"startTime": CREATED}}
"""Of a job that has started, maybe before there was a bound."""


@pytest.mark.parametrize(
    "more",
    [
        {"terminationGracePeriodSeconds": 7_200},
        {"tolerations": [{"key": f"k{number}"} for number in range(5_000)]},
        {"containers": [template()["spec"]["containers"][0] | {"env": [{"name": "A", "value": BIG}] * 3}]},
    ],
)
def test_job_that_has_started_is_not_held_to_a_bound_that_came_later(more):
    """An upgrade let go of running jobs: their templates cannot be changed until they are suspended (ADR 0161)."""
    raw = raw_job()
    raw["spec"]["trainer"]["template"]["spec"] |= more
    with pytest.raises(InvalidSpecError):
        parse_job(trim_job(raw))
    job = parse_job(trim_job(raw | OLD))
    assert job.template(Role.TRAINER).raw == raw["spec"]["trainer"]["template"]
    assert job.template(Role.TRAINER).grace_s <= LONGEST_GRACE_S


@pytest.mark.parametrize("kind", TRIMMERS, ids=lambda kind: kind.plural)
def test_nothing_of_any_kind_is_held_as_long_as_its_author_likes(kind):
    """Labels by the thousand, an owner's name that the API server does not measure, fields nobody has thought of."""
    names = {f"edl.dev/{number}": BIG[:60] for number in range(9_000)}
    metadata = {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": names}
    owner = {**WEB, "name": BIG}
    spec = {"replicas": 3, "scaleTargetRef": {"name": BIG}, "hard": MANY, "limits": [MANY], "newIn2030": BIG}
    raw = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec}
    assert len(json.dumps(TRIMMERS[kind](raw))) < 2 * LONGEST


@pytest.mark.parametrize("kind", [RESOURCE_QUOTAS, LIMIT_RANGES])
def test_quota_of_usual_length_is_held_as_it_is(kind):
    raw = {
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"hard": {"cpu": "3"}},
        "status": {"used": {"cpu": "1"}},
    }
    assert TRIMMERS[kind](raw) == raw


def test_job_that_says_too_much_beside_its_templates_is_refused():
    raw = raw_job(checkpoint={"uri": f"file:///{BIG}"})
    for one in (raw, TRIMMERS[TRAINING_JOBS](raw)):
        with pytest.raises(InvalidSpecError) as refused:
            parse_job(one)
        assert (refused.value.path, f"{LONGEST:,}" in refused.value.problem) == ("spec", True)


def test_job_of_usual_length_is_held_as_it_is():
    raw = raw_job()
    assert parse_job(trim_job(raw)) == parse_job(raw)


def test_request_for_a_comparison_is_held_in_short_beside_the_other_annotations():
    """It is handed on to the job's master with each poll; whoever may edit the job writes it."""
    raw = raw_job()
    raw["metadata"]["annotations"] = {"note": BIG, COMPARE: "r" * 10_000}
    assert trim_job(raw)["metadata"]["annotations"] == {COMPARE: "r" * LONGEST_REQUEST}
    assert "annotations" not in trim_job(raw_job())["metadata"]
