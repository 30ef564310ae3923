"""What an operator leaves out of a pod is missed by none of its readers."""

import copy
import json

import pytest

from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.api.port import Listing
from autoscaler.clusters.kubernetes.building.labels import MASTER_SEATS, REPLACES
from autoscaler.clusters.kubernetes.building.pods import build_pod, ungate_patch
from autoscaler.clusters.kubernetes.reading.pods import PodContext, deployment_of, gates_of, read_pod
from autoscaler.clusters.kubernetes.reading.raw import controller_of
from autoscaler.clusters.kubernetes.reading.requests import pod_request
from autoscaler.clusters.kubernetes.reading.slim import slim_pod
from autoscaler.domain import Role
from autoscaler.job_errors import JobErrors
from autoscaler.operator.ends import end_of
from autoscaler.operator.following import FollowedStore
from autoscaler.operator.standing import has_ended, is_gated, is_leaving, is_ready, own_pods
from tests.unit.kube_objects import CREATED, SETTINGS, UID, as_stored, kube_job, raw_pod, seat

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
    return as_stored(build_pod(kube_job(server={}), seat(Role.TRAINER, ordinal=3), SETTINGS, is_gated=False)) | fields


def foreign(*, status=None, owner=WEB, **spec):
    containers = [{"name": "c", "resources": ASKED, **BALLAST}]
    starts = [{"name": "i", "resources": {"requests": {"cpu": "3"}}, "restartPolicy": "Always", **BALLAST}]
    body = {"containers": containers, "initContainers": starts, "volumes": [{"name": "data", "emptyDir": {}}]}
    labels = {"pod-template-hash": "7c9", "app": "web"}
    status = {"conditions": CONDITIONS, "qosClass": "Burstable"} | (status or {})
    return raw_pod(node="n1", owner=owner, labels=labels, status=status, **(body | spec))


def gated():
    pod = as_stored(build_pod(kube_job(), seat(Role.TRAINER), SETTINGS, is_gated=True))
    pod["metadata"]["annotations"] = {MASTER_SEATS: "n1,n2", "kubectl.kubernetes.io/last-applied": "{}"}
    return pod


def moving_in():
    return own()["metadata"] | {"annotations": {REPLACES: "digits-server-0/first", "note": "1"}}


PODS_OF_ALL_KINDS = {
    "a web pod": foreign(),
    "unschedulable": foreign(status={"phase": "Pending", "conditions": [UNPLACED]}, nodeName=None),
    "tied to a volume": foreign(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
    "with affinity": foreign(nodeSelector={"zone": "a"}, tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "of another scheduler": foreign(schedulerName="other", overhead={"cpu": "100m"}),
    "resized in place": foreign(
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
    end = end_of(raw, frozenset())
    return {
        "pod": read_pod(raw, CONTEXT),
        "request": pod_request(raw.get("spec") or {}, raw.get("status") or {}),
        "gates": gates_of(raw),
        "owner": (controller_of(raw), deployment_of(raw)),
        "end": end,
        "own": own_pods(kube_job(), [raw]) == [raw],
        "is": (has_ended(raw), is_gated(raw), is_leaving(raw), is_ready(raw)),
        "seats": ((raw["metadata"].get("annotations") or {}).get(MASTER_SEATS)),
        "whose place it takes": ((raw["metadata"].get("annotations") or {}).get(REPLACES)),
        "address": (raw.get("status") or {}).get("podIP"),
        "ungated": ungate_patch(raw, "n7") if gates_of(raw) else None,
    }


@pytest.mark.parametrize("kind", PODS_OF_ALL_KINDS)
def test_no_reader_misses_what_is_left_out(kind):
    raw = PODS_OF_ALL_KINDS[kind]
    before = copy.deepcopy(raw)
    slim = slim_pod(raw)
    assert told(slim) == told(raw)
    assert raw == before
    assert slim_pod(slim) == slim


@pytest.mark.parametrize("kind", ["a web pod", "a trainer that runs"])
def test_most_of_a_pod_is_left_out(kind):
    raw = PODS_OF_ALL_KINDS[kind]
    assert len(json.dumps(slim_pod(raw))) < len(json.dumps(raw)) * 0.6


def test_an_unknown_field_stays():
    raw = foreign(newIn2030={"a": 1})
    raw["spec"]["containers"][0]["newIn2031"] = True
    spec = slim_pod(raw)["spec"]
    assert spec["newIn2030"] == {"a": 1}
    assert spec["containers"][0]["newIn2031"]


def test_the_answer_to_a_write_is_held_without_it_too():
    store = FollowedStore(JobErrors(lambda: 0.0))
    store.take_listing(PODS, Listing(items=(), resource_version="1"), asked_at_s=0.0)
    raw = foreign()
    raw["metadata"]["resourceVersion"] = "7"
    store.learn(PODS, raw)
    assert store.get(PODS, ("team-a", "web-1")) == slim_pod(raw)
