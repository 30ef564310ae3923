"""`edl` on a run of this machine: what differs from a cluster.  The rest is `test_cluster_place`'s."""

import asyncio
import json
from contextlib import contextmanager

import pytest

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.local.run_place import RunPlace, list_names, open_run, without_namespace
from autoscaler.cli.local.run_records import read_log
from autoscaler.cli.output.formats import format_objects
from autoscaler.cli.place_values import LogOptions, PodSelector, SizeRequest
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.local.control_plane.socket_client import SocketApi
from autoscaler.clusters.local.run_files.run_folder import RunFolder, write_manifest
from autoscaler.domain import Policy
from autoscaler.operator.process.policy_file import policy_config_map
from tests.unit.cli.kube_place import node, raw_pod
from tests.unit.clusters.kubernetes.raw_objects import raw_job


@pytest.fixture
def folder(tmp_path):
    """A run folder with a manifest, logs and events."""
    made = RunFolder(root=tmp_path / "a-run")
    made.logs.mkdir(parents=True)
    write_manifest(made, {"jobs": {"digits": "Completed"}})
    made.log_of("digits-trainer-0").write_text("one\ntwo\n")
    made.events.write_text("".join(event(number) for number in (1, 2)))
    return made


def event(number):
    fields = {"number": number, "t_s": 1.0, "kind": "Job", "object": "tj/digits", "reason": "Started", "message": "so"}
    return json.dumps(fields) + "\n"


class Stage:
    """The server of a run, and its user."""

    def __init__(self, runner, folder):
        self.server = MemoryServer(now=lambda: 1767323045.0)
        self.api = MemoryApi(self.server)
        self._runner = runner
        self.place = RunPlace(runner, self.api, folder)

    def make(self, kind, body):
        created = self._runner.run(self.api.create(kind, {**body, "metadata": {**body["metadata"], "uid": None}}))
        if "status" in body:
            self.server.rewrite(kind, created, {**created, "status": body["status"]})

    def make_pod(self, name, role="", **annotations):
        pod = raw_pod(name, namespace="default", node="node-1")
        labels = {"edl.dev/role": role, "edl.dev/job": "digits"} if role else {}
        self.make(kinds.PODS, {**pod, "metadata": {**pod["metadata"], "labels": labels, "annotations": annotations}})

    def pods(self):
        return {pod["metadata"]["name"]: "deletionTimestamp" in pod["metadata"] for pod in self.server.all(kinds.PODS)}


@pytest.fixture
def stage(folder):
    with asyncio.Runner() as runner:
        made = Stage(runner, folder)
        made.make(kinds.NODES, node("node-1"))
        yield made


@contextmanager
def refused(code, text):
    with pytest.raises(CommandError) as caught:
        yield
    assert caught.value.code is code
    assert text in caught.value.message


@pytest.fixture
def gone(folder):
    """The place of a run whose socket nobody serves."""
    with open_run(folder) as place:
        yield place


def test_pods_have_a_process_a_port_and_gpus(stage):
    """With -o wide, as the kubelet has noted them."""
    told = {"edl.dev/pid": "17", "edl.dev/port": "8080", "edl.dev/gpus": "0,1"}
    stage.make_pod("digits-trainer-0", "trainer", **told)
    heading, row = format_objects(stage.place.get("pod", ""), "wide", is_single=False).splitlines()
    assert heading.split()[-3:] == ["PID", "PORT", "GPUS"]
    assert row.split()[-3:] == ["17", "8080", "0,1"]
    assert "PID" not in format_objects(stage.place.get("pod", ""), "table", is_single=False)


def test_a_drained_node_is_emptied_and_opened_again(stage):
    """There is no kubectl drain here: who is not moved by the planner is evicted by the command."""
    for name, role in (("digits-trainer-0", "trainer"), ("digits-server-0", "server"), ("digits-master-x", "master")):
        stage.make_pod(name, role)
    stage.make_pod("web-0")
    anything = PodSelector()
    assert "would be drained" in stage.place.drain("node", "node-1", anything, is_dry=True)
    assert not any(stage.pods().values())
    assert stage.place.drain("node", "node-1", anything, is_dry=False).endswith("draining: all pods leave it")
    assert {name for name, is_leaving in stage.pods().items() if is_leaving} == {"digits-master-x", "web-0"}
    labels = lambda: stage.server.get(kinds.NODES, None, "node-1")["metadata"].get("labels", {})  # noqa: E731
    assert "edl.dev/drain" in labels()
    assert stage.place.uncordon("node", "node-1") == "node/node-1 is open"
    assert "edl.dev/drain" not in labels()


def test_a_size_that_no_machine_has_is_refused(stage):
    """A slip of the finger would fill the memory of the run with pods."""
    with refused(Exit.USAGE, "at most 10000"):
        stage.place.scale("deployment", "web", [SizeRequest(field="replicas", count=10_001)], is_dry=False)


def test_describe_of_a_deployment_lists_its_pods(stage):
    """By the name of the ReplicaSet that owns them."""
    for name, owner in (("web-local-0", "web-local"), ("shop-local-0", "shop-local")):
        pod = raw_pod(name, namespace="default", node="node-1")
        owners = [{"kind": "ReplicaSet", "name": owner, "uid": "u", "controller": True, "apiVersion": "apps/v1"}]
        told = {"labels": {"pod-template-hash": "local"}, "ownerReferences": owners}
        stage.make(kinds.PODS, {**pod, "metadata": {**pod["metadata"], **told}})
    spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "web"}]}}}
    stage.make(kinds.DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    _, _, pods = "\n".join(stage.place.describe("deployment", "web")).partition("Pods:")
    assert "web-local-0" in pods
    assert "shop-local-0" not in pods


def test_logs_are_the_runs_files_also_of_pods_that_are_gone(stage):
    """By the pod's name, or by the job's with its role and number."""
    everything, last = LogOptions(), LogOptions(tail=1)
    assert "".join(stage.place.log("pod", "digits-trainer-0", PodSelector(), everything)) == "one\ntwo\n"
    assert "".join(stage.place.log("tj", "digits", PodSelector(ordinal=0), last)) == "two\n"
    with refused(Exit.USAGE, "leave -p out"):
        stage.place.log("pod", "digits-trainer-0", PodSelector(), LogOptions(is_previous=True))
    with refused(Exit.NOT_FOUND, "there is no tj/digits"):
        stage.place.log("tj", "digits", PodSelector(ordinal=1), everything)
    stage.make_pod("digits-trainer-1", "trainer")
    with refused(Exit.NOT_FOUND, "has not started yet"):
        stage.place.log("tj", "digits", PodSelector(), everything)


def test_what_was_written_just_before_the_end_is_followed(folder, monkeypatch):
    """Between the last look at the file and the end of the run."""
    path = folder.log_of("digits-trainer-0")

    def ends(_):
        with path.open("a") as log:
            log.write("three\n")
        return False

    monkeypatch.setattr(RunFolder, "is_live", ends)
    assert "".join(read_log(path, None, folder)) == "one\ntwo\nthree\n"


def test_events_are_the_runs_record(stage, folder, gone):
    """While it goes on and afterwards; a line that is being written is left for later."""
    lines = list(stage.place.events(is_watching=False))
    assert [line.content["number"] for line in lines] == [1, 2]
    assert lines[0].text == "     1.0s  tj/digits                Started        so"
    with folder.events.open("a") as file:
        file.write(event(3)[:20])
    assert [line.content["number"] for line in gone.events(is_watching=True)] == [1, 2]


def test_a_run_that_is_over_says_so(folder, gone):
    """And what became of its jobs is in its manifest."""
    with refused(Exit.NOT_FOUND, "is over; its events.jsonl"):
        gone.get("tj", "")
    with refused(Exit.NOT_FOUND, "is over"):
        list(gone.watch("tj", ""))
    assert gone.is_condition_met("tj", "digits", "completed")
    assert "".join(gone.log("tj", "digits", PodSelector(), LogOptions())) == "one\ntwo\n"
    with refused(Exit.NOT_FOUND, "is over"):
        gone.log("tj", "digits", PodSelector(role="server"), LogOptions())
    with refused(Exit.NOT_FOUND, "is over"):
        gone.is_condition_met("tj", "digits", "failed")
    assert list_names(folder, ["tj", "pod"]) == []


def test_a_watch_ends_with_the_run(stage, folder, monkeypatch):
    """As `kubectl get -w` of a connection that is closed: no error after what was shown."""
    stage.make(kinds.TRAINING_JOBS, {**raw_job("digits"), "metadata": {"name": "digits", "namespace": "default"}})
    found = stage.place.watch("tj", "")
    assert next(found).objects[0]["metadata"]["name"] == "digits"
    monkeypatch.setattr(stage.api, "watch", SocketApi(folder.control_socket()).watch)
    monkeypatch.setattr(stage.api, "list", SocketApi(folder.control_socket()).list)
    stage.server.history.disconnect_all()
    assert list(found) == []


def test_a_snapshot_has_the_runs_policy_and_bare_names(stage, capsys):
    """Names as the files of the run have them, and no remarks about an operator that nobody sees."""
    policy = Policy(burst_window_s=0.0, up_window_s=7.0)
    stage.make(kinds.CONFIG_MAPS, policy_config_map(policy, namespace="default"))
    stage.make(kinds.TRAINING_JOBS, {**raw_job("digits"), "metadata": {"name": "digits", "namespace": "default"}})
    for name in ("edl-core", "edl-surplus"):
        stage.make(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 0, "preemptionPolicy": "Never"})
    found = stage.place.snapshot()
    assert found.policy == policy
    assert [job.name for job in found.view.jobs] == ["digits"]
    assert found.made_by == "run a-run"
    assert capsys.readouterr().err == ""


def test_only_the_runs_namespace_is_left_out():
    """In keys and values."""
    document = {"default/a": ["default/b", "other/c", 1, None, {"x": "default"}]}
    assert without_namespace(document, "default") == {"a": ["b", "other/c", 1, None, {"x": "default"}]}
