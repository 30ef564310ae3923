"""What a run's files become as objects of its API server."""

from pathlib import Path

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PRIORITY_CLASSES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.domain import Role
from autoscaler.local_run.submission import build_objects
from autoscaler.manifests import parse_files
from autoscaler.manifests.api_types import Mode

JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  mode: observe
  trainer:
    minReplicas: 1
    maxReplicas: 3
    template:
      spec:
        nodeSelector: {disk: ssd}
        containers:
          - {name: trainer, image: mine, command: [python, t.py], resources: {requests: {cpu: 1, memory: 256Mi}}}
  parameterServer:
    minReplicas: 2
    template: {spec: {containers: [{name: server, resources: {requests: {cpu: 0.5, memory: 1Gi}}}]}}
  master: {replicas: 3}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    spec:
      containers: [{name: web, command: [python, w.py], resources: {requests: {cpu: 1, memory: 64Mi}}}]
"""
CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
"""


@pytest.fixture
def objects_of(tmp_path):
    def build(*documents):
        file = tmp_path / "files.yaml"
        file.write_text("---".join(documents))
        return list(build_objects(parse_files([file]), Path("/run/checkpoints")))

    return build


def job_of(objects):
    ((_, body),) = objects
    return parse_job({**body, "metadata": {**body["metadata"], "uid": "u"}})


def test_the_operator_reads_a_job_of_a_file(objects_of):
    """As its own definition has it, with the defaults that a cluster fills in."""
    job = job_of(objects_of(JOB))
    assert (job.key, job.spec.priority_class) == ("default/digits", "edl-core")
    assert job.spec.checkpoint.uri == "/run/checkpoints/digits"
    assert job.spec.server.replicas.maximum == 2
    assert job.template(Role.TRAINER).own_container["resources"]["requests"] == {"cpu": "1", "memory": "256Mi"}


def test_what_means_nothing_on_one_machine_is_left_out(objects_of):
    """The file has its notices: one master runs, the job is managed, and no node has labels."""
    job = job_of(objects_of(JOB))
    assert (job.spec.mode, job.spec.master.replicas) == (Mode.MANAGE, 1)
    assert "nodeSelector" not in job.template(Role.TRAINER).spec


def test_only_a_program_of_the_users_own_has_an_image(objects_of):
    """A server whose file names no program runs EDL's, which the operator adds."""
    job = job_of(objects_of(JOB))
    assert job.template(Role.TRAINER).own_container["image"] == "local"
    assert "image" not in job.template(Role.SERVER).own_container


def test_a_job_keeps_its_own_checkpoint_folder(objects_of):
    job = job_of(objects_of(JOB + "  checkpoint: {uri: /data/digits, everySeconds: 7}\n"))
    assert (job.spec.checkpoint.uri, job.spec.checkpoint.every_s) == ("/data/digits", 7)


def test_classes_come_before_what_names_them_and_jobs_come_last(objects_of):
    kinds = [kind for kind, _ in objects_of(JOB, WEB, CLASS)]
    assert kinds == [PRIORITY_CLASSES, DEPLOYMENTS, TRAINING_JOBS]
