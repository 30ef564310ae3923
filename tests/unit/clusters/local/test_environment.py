"""What a job's description says of its servers reaches its master, on the local cluster too."""

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.clusters.local.cluster.pod_launch import PodLauncher
from autoscaler.clusters.local.pods.local_pod import LocalPod, PodPhase
from autoscaler.clusters.local.pods.member_environment import JobPlace, job_environment
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.domain import Role, Tier
from autoscaler.manifests import parse_files
from autoscaler.manifests.api_types import AfterServerLoss, ReplicaBounds
from master.job.domain.job_config import AfterLoss
from master.process.master_config import Settings

PLACE = JobPlace(
    master="unix:/run/s/m1",
    servers="unix:/run/s",
    etcd="",
    checkpoint_uri="/ck",
    token_file=Path("/nowhere"),
    token="x",
)


@pytest.fixture
def job():
    return parse_files([Path("examples/digits.yaml")]).jobs[0]


def settings_of(job, place=PLACE):
    pod = LocalPod(
        name="digits-master-0",
        role=Role.MASTER,
        tier=Tier.CORE,
        owner="digits",
        ordinal=0,
        template=job.master.template,
        priority=0,
        grace_s=10.0,
        created_at_s=0.0,
        log=Path("log"),
        phase=PodPhase.READY,
    )
    told = job_environment(pod, job, place)
    return Settings.from_environment({name: value for name, value in told.items() if name != "EDL_TOKEN_FILE"})


@pytest.mark.parametrize("policy", AfterServerLoss)
def test_a_master_hears_what_servers_do_after_a_loss(job, policy):
    """Both sides have a word of their own for it, and mean the same."""
    config = settings_of(replace(job, server=replace(job.server, after_loss=policy))).config
    assert config.after_loss.name == policy.name
    assert config.after_loss is AfterLoss(policy.value)


@pytest.mark.parametrize("copies", [1, 2])
def test_a_master_hears_how_many_copies_there_are(job, copies):
    servers = replace(job.server, replicas=ReplicaBounds(minimum=1, maximum=2), copies=copies)
    assert settings_of(replace(job, server=servers)).config.copies == copies


def test_a_job_without_servers_says_nothing_of_them(job):
    assert settings_of(replace(job, server=None)).config.servers == 0


@pytest.mark.parametrize("uri", ["", "/ck", "file:///ck", "s3://bucket/ck"])
def test_a_job_on_an_object_store_has_a_history_of_its_own(job, uri, tmp_path):
    """No run can claim one: in one history two runs deleted each other's commits (ADR 0188)."""
    job = replace(job, checkpoint=replace(job.checkpoint, uri=uri))
    folder = make_run_folder(tmp_path, "run", described={})
    place = PodLauncher(folder=folder, working_dir=tmp_path, environment={}).place_job(job)
    assert settings_of(job, place).history == (place.history if uri.startswith("s3:") else None)
