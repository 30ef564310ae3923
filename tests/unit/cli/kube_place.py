"""A small cluster in memory with a job on it, and the command line's door to it."""

import asyncio
from contextlib import contextmanager

import pytest

from autoscaler.cli.exit_codes import CommandError
from autoscaler.cli.kubernetes.cluster_place import ClusterPlace
from autoscaler.cli.kubernetes.object_reader import ObjectReader
from autoscaler.cli.kubernetes.object_writer import ObjectWriter
from autoscaler.cli.output.formats import format_objects
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.domain import Role
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, condition, placement, raw_job, raw_pod

NAMESPACE = "team-a"
STATUS = {
    "observedGeneration": 1,
    "reason": "NodeFit",
    "share": "0.250",
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "x"},
        {"type": "Scaled", "status": "False", "reason": "NodeFit", "message": "n1 is full", "lastTransitionTime": "x"},
    ],
    "trainers": {"ready": 2, "target": 3, "min": 2, "max": 8, "core": 2, "surplus": 0, "names": []},
    "master": {"ready": 1, "leader": "digits-master-b"},
    "progress": {
        "epoch": 1,
        "epochs": 3,
        "samplesCommitted": 1500,
        "samplesTotal": 6000,
        "percent": "25.0%",
        "lastCheckpointTime": "2026-01-02T03:04:05Z",
    },
    "resizes": [
        {"time": "2026-01-02T03:04:05Z", "from": 2, "to": 3, "cause": "growth", "by": "edl", "message": "room"}
    ],
    "startTime": "2026-01-02T03:04:05Z",
}


def status(*conditions, **fields):
    told = [{"reason": "Because", "message": "so", "lastTransitionTime": "x", **one} for one in conditions]
    return {**STATUS, **fields, "conditions": told or STATUS["conditions"]}


def node(name="n1", **meta):
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "metadata": {"name": name, **meta},
        "status": {"allocatable": offered, "conditions": [condition("Ready", "True")]},
    }


class Stage:
    """The server, and what stands on it."""

    def __init__(self, runner):
        self.server = MemoryServer(now=lambda: 1767323045.0, namespaces=("default", NAMESPACE, "edl-system"))
        self.api = MemoryApi(self.server)
        self._runner = runner
        self.make(kinds.PRIORITY_CLASSES, {"metadata": {"name": "edl-core"}, "value": 0})

    def make(self, kind, body):
        told = body.get("status")
        metadata = {k: v for k, v in body["metadata"].items() if k not in {"uid", "resourceVersion", "generation"}}
        made = self._runner.run(self.api.create(kind, {**body, "metadata": metadata}))
        if told and kind in {kinds.PODS, kinds.TRAINING_JOBS, kinds.NODES, kinds.NODE_GPUS}:
            name, namespace = metadata["name"], metadata.get("namespace")
            change = {"status": told}
            made = self._runner.run(
                self.api.patch(kind, name, change, namespace=namespace, subresource=Subresource.STATUS)
            )
        return made

    def make_job(self, name="digits", told=STATUS, **spec):
        return self.make(kinds.TRAINING_JOBS, {**raw_job(name, **spec), "status": told})

    def make_trainers(self, job, count, node="n1"):
        self.make_pods(job, Role.TRAINER, count, node)

    def make_pods(self, job, role, count, node="n1"):
        for ordinal in range(count):
            body = build_pod(parse_job(job), placement(role, ordinal=ordinal, node=node), SETTINGS, is_gated=False)
            body["spec"]["nodeName"] = node
            ready = {"phase": "Running", "conditions": [condition("Ready", "True")]}
            self.make(kinds.PODS, {**body, "status": ready})

    def get(self, kind, name, namespace=NAMESPACE):
        return self._runner.run(self.api.get(kind, name, namespace=namespace))


@contextmanager
def stage(*, is_all_namespaces=False, wrap=lambda api: api):
    """The stage and the place that `edl` would open on it."""
    with asyncio.Runner() as runner:
        made = Stage(runner)
        reader = ObjectReader(api=wrap(made.api), namespace=NAMESPACE, is_all_namespaces=is_all_namespaces)
        yield made, ClusterPlace(runner, reader, ObjectWriter(reader), title="context test")


__all__ = ["NAMESPACE", "STATUS", "Stage", "node", "raw_pod", "stage", "status"]


def refused(code, call, *words, **fields):
    with pytest.raises(CommandError) as caught:
        call(*words, **fields)
    assert caught.value.code is code
    return caught.value.message


def table(place, kind, name="", output="table"):
    return format_objects(place.get(kind, name), output, is_single=bool(name)).splitlines()


def event(reason, note, *, kind="TrainingJob", name="digits", at="2026-01-02T03:05:05.000000Z"):
    return {
        "metadata": {"name": f"{name}.{reason.lower()}", "namespace": NAMESPACE},
        "eventTime": at,
        "reason": reason,
        "note": note,
        "regarding": {"kind": kind, "name": name, "namespace": NAMESPACE},
    }
