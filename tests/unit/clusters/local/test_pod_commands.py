"""What a master on this machine is told of its job: as on a cluster, but for the history of its checkpoints."""

import base64
import os
import resource

import pytest

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.clusters.local.control_plane.pod_commands import PodCommands
from autoscaler.clusters.local.machine.processes import MachineFullError
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.domain import Reclaim
from autoscaler.manifests.api_types import AfterServerLoss
from master.job.domain.job_config import AfterLoss
from master.process.master_config import Settings

UID = "11111111-2222-4333-8444-555555555555"
SECRET = {"metadata": {"uid": "s"}, "data": {"token": base64.b64encode(b"secret").decode()}}


def container(**more):
    resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
    return {"spec": {"containers": [{"name": "main", "image": "none", "resources": resources, **more}]}}


def raw_job(servers=None, uri="/ck", start=""):
    spec = {
        "priorityClassName": "edl-core",
        "trainer": {"minReplicas": 1, "maxReplicas": 2, "template": container(command=["true"])},
        "checkpoint": {"uri": uri, **({"start": start} if start else {})},
    }
    if servers is not None:
        spec["parameterServer"] = {"minReplicas": 1, "maxReplicas": 2, "template": container(), **servers}
    return {"metadata": {"name": "digits", "namespace": "default", "uid": UID, "generation": 1}, "spec": spec}


@pytest.fixture
def settings_of(tmp_path):
    """The settings that the master of such a job reads."""
    folder = make_run_folder(tmp_path, "run", described={})
    commands = PodCommands(folder=folder, working_dir=tmp_path, environment={}, secret_of=lambda *_: SECRET)
    build = BuildSettings(
        image="none", etcd=EtcdAccess(endpoints=""), reclaim=Reclaim.PLANNER, elastic_servers=True, moves_servers=True
    )

    def read(port=None, **job):
        pod = build_master(parse_job(raw_job(**job)), build)["spec"]["template"]
        metadata = {**pod["metadata"], "name": "digits-master-local-0", "namespace": "default", "uid": "p"}
        command = commands.command_of({**pod, "metadata": metadata}, port=port, gpus=())
        return Settings.from_environment(
            {name: value for name, value in command.env.items() if name != "EDL_TOKEN_FILE"}
        )

    return read


def test_a_pod_whose_secrets_find_no_room_waits_and_the_folder_is_named(settings_of, tmp_path):
    """As for a process that finds none: no fault of the pod (ADR 0207)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(next_descriptor := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor, hard))
    try:
        with pytest.raises(MachineFullError, match=f"{tmp_path}.*/tokens/p cannot be written: Too many open files"):
            settings_of()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_pod_sees_its_gpus_by_their_uuids_where_they_are_known(tmp_path):
    """CUDA counts in an order of its own; without a driver there are numbers alone."""
    commands = PodCommands(
        folder=make_run_folder(tmp_path, "run", described={}),
        working_dir=tmp_path,
        environment={"CUDA_VISIBLE_DEVICES": "2,3"},
        secret_of=lambda *_: SECRET,
        cuda_ids={2: "GPU-c2", 3: "GPU-d3"},
    )
    pod = {"metadata": {"name": "web", "namespace": "default", "uid": "p"}, "spec": container()["spec"]}

    def seen(*gpus):
        return commands.command_of(pod, port=None, gpus=gpus).env["CUDA_VISIBLE_DEVICES"]

    assert (seen(2, 3), seen(3), seen(), seen(5)) == ("GPU-c2,GPU-d3", "GPU-d3", "", "5")


@pytest.mark.parametrize("policy", AfterServerLoss)
def test_a_master_hears_what_servers_do_after_a_loss(settings_of, policy):
    """Both sides have a word of their own for it, and mean the same."""
    config = settings_of(servers={"afterLoss": policy.value}).config
    assert config.after_loss.name == policy.name
    assert config.after_loss is AfterLoss(policy.value)


@pytest.mark.parametrize("copies", [1, 2])
def test_a_master_hears_how_many_copies_there_are(settings_of, copies):
    assert settings_of(servers={"copies": copies}).config.copies == copies


def test_a_job_without_servers_says_nothing_of_them(settings_of):
    assert settings_of().config.servers == 0


@pytest.mark.parametrize("uri", ["/ck", "file:///ck", "s3://bucket/ck"])
def test_a_job_on_an_object_store_has_a_history_of_its_own(settings_of, uri):
    """No run can lock one: in one history two runs deleted each other's commits (ADR 0188)."""
    assert settings_of(uri=uri).history == (UID if uri.startswith("s3:") else None)


def test_a_job_that_is_told_where_to_start_has_a_history_of_its_own(settings_of):
    """What follows is another story than the one in the folder."""
    assert settings_of(start="fresh").history == UID


def test_a_master_serves_metrics_at_the_port_that_it_was_given(settings_of):
    """Without one it has none: members of a local run listen on sockets, where no other user reads (ADR 0170)."""
    listening = settings_of(port=17_000).metrics_listen
    assert (listening.host, listening.port) == ("127.0.0.1", 17_000)
    assert settings_of().metrics_listen is None
