"""The digits job in real containers: objects as the operator builds them, images by their Dockerfiles, etcd in a pod.

The operator is not here: the test makes what it would make, once.  So a failure here is one of images, objects,
names, certificates or the network, and not of a decision.
"""

import datetime as dt

import numpy as np
import pytest
import yaml
from kubernetes import client

from autoscaler.clusters.kubernetes.building.identity import issue, secrets_of
from autoscaler.clusters.kubernetes.building.master import build_master, build_service
from autoscaler.clusters.kubernetes.building.pods import build_pod
from autoscaler.clusters.kubernetes.building.settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.reading.jobs import read_job
from autoscaler.domain import Cause, CreatePod, Role, Tier
from tests.cluster.trainingjobs import GROUP
from tests.e2e.conftest import NODES
from tests.e2e.images import CHECKOUT, NAMES

DIGITS = 1437  # of examples/digits.npz, to train on
EPOCHS = 3
FOLDER = "/tmp/edl-checkpoints"
TRAINERS = ((0, Tier.CORE, 0), (1, Tier.CORE, 0), (2, Tier.SURPLUS, 3))
SETTINGS = BuildSettings(image=NAMES["operator"], etcd=EtcdAccess(endpoints="http://etcd:2379"))


@pytest.fixture
def job(definitions, api, namespace, checkpoints):
    """The TrainingJob of examples/, smaller, counting how often each digit was trained."""
    raw = yaml.safe_load((CHECKOUT / "examples/kubernetes/digits.yaml").read_text())
    spec = raw["spec"]
    container = spec["trainer"]["template"]["spec"]["containers"][0]
    container["args"] = ["--epochs", str(EPOCHS), "--ledger", "--out", f"{FOLDER}/model"]
    spec["parameterServer"]["minReplicas"] = 1
    for role in ("trainer", "parameterServer"):
        for part in spec[role]["template"]["spec"]["containers"]:
            part["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    objects = client.CustomObjectsApi(api)
    return read_job(objects.create_namespaced_custom_object(namespace=namespace, body=raw, **GROUP))


def seat(job, role, ordinal=0, tier=Tier.CORE, grade=0):
    node = NODES[ordinal % len(NODES)]
    return CreatePod(job=job.key, role=role, ordinal=ordinal, tier=tier, node=node, cause=Cause.START, grade=grade)


def test_every_digit_is_trained_exactly_once_an_epoch(job, etcd, pods, core, api, namespace, checkpoints):
    """Three trainers on two nodes, one server, one master: the ledger in the final model is exact (promise A1)."""
    for secret in secrets_of(job, issue(job, dt.datetime.now(dt.UTC)), SETTINGS.etcd):
        core.create_namespaced_secret(namespace, secret)
    core.create_namespaced_service(namespace, build_service(job))
    client.AppsV1Api(api).create_namespaced_deployment(namespace, build_master(job, SETTINGS))
    pods.create(build_pod(job, seat(job, Role.SERVER), SETTINGS, is_gated=False))
    bodies = [
        build_pod(job, seat(job, Role.TRAINER, ordinal, tier, grade), SETTINGS, is_gated=False)
        for ordinal, tier, grade in TRAINERS
    ]
    trainers = [pods.create(body) for body in bodies]
    assert [pods.wait_end(name, budget_s=150.0) for name in trainers] == [0, 0, 0]
    assert sum("test accuracy" in pods.logs(name) for name in trainers) == 1
    with np.load(checkpoints / "model/model.npz") as model:
        assert np.array_equal(model["ledger"], np.full(DIGITS, EPOCHS))
