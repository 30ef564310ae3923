"""The `edl` command on a real API server, as users have it: another process, their kubeconfig, their rights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from autoscaler.clusters.kubernetes.builders.member_pods import build_pod
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.domain import Role
from tests.cluster.kwok_nodes import NodeShape
from tests.cluster.trainingjobs import GROUP
from tests.cluster.workloads import installed, job_of
from tests.harness.waiting import BUDGET_S, wait_for
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, placement

EDL = str(Path(sys.executable).with_name("edl"))
PLUGIN = f"#!{sys.executable}\nfrom autoscaler.cli.main import plugin\nplugin()\n"
TIME = "2026-01-02T03:04:05Z"


@pytest.fixture
def edl(control_plane, api, namespace, tmp_path):
    """Runs `edl WORDS` against the API server; standard output, after checking the exit code."""

    def run(*words, code=0, kubeconfig=control_plane.kubeconfig, program=(EDL,)):
        command = [*program, *words, "--kubeconfig", str(kubeconfig), "-n", namespace]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=BUDGET_S, check=False, env=environment()
        )
        assert done.returncode == code, (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    with installed(control_plane, api):
        yield run


@pytest.fixture
def jobs(api):
    return client.CustomObjectsApi(api)


@pytest.fixture
def digits(edl, jobs, core, namespace, nodes):
    """A job with two trainers at work on one node, as an operator would have left it; the node's name."""
    (node,) = nodes(NodeShape(cpu="8", memory="32Gi"))
    raw = jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=job_of("digits", servers=1))
    for ordinal in range(2):
        body = build_pod(parse_job(raw), placement(Role.TRAINER, ordinal=ordinal, node=node), SETTINGS, is_gated=False)
        core.create_namespaced_pod(namespace, body)
    say(jobs, namespace, "Scaled", status="False", trainers={"ready": 2, "target": 3})
    wait_for("trainers", lambda: len(ready(core, namespace)) == 2)
    return node


def environment():
    """Ours, without what would choose another cluster or run."""
    return {k: v for k, v in os.environ.items() if k not in {"KUBECONFIG", "EDL_RUN", "EDL_ON"}}


def ready(core, namespace):
    pods = core.list_namespaced_pod(namespace, label_selector="edl.dev/job=digits").items
    return [pod for pod in pods if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())]


def say(jobs, namespace, kind, *, status="True", **fields):
    """Write a status as the operator does."""
    one = {"type": kind, "status": status, "reason": "NodeFit", "message": "so", "lastTransitionTime": TIME}
    body = {"status": {"conditions": [one], "reason": "NodeFit", "observedGeneration": 1, **fields}}
    jobs.patch_namespaced_custom_object_status(**GROUP, namespace=namespace, name="digits", body=body)


def test_what_is_there_is_shown(edl, digits, namespace):
    """Tables as kubectl has them, whole objects for scripts, and everything about one job."""
    assert edl("get", "tj").splitlines()[1].split()[:5] == ["digits", "2", "3", "2", "20"]
    assert namespace in edl("get", "pods", "-A")
    row = next(line for line in edl("get", "nodes").splitlines() if line.startswith(digits))
    assert row.split()[1:4] == ["Ready", "2/8", "256Mi/32Gi"]
    assert json.loads(edl("get", "tj/digits", "-o", "json"))["spec"]["trainer"]["maxReplicas"] == 20
    told = edl("describe", "tj/digits")
    assert "Why:         NodeFit: so" in told
    assert "digits-trainer-1" in told.partition("Pods:")[2]
    wait_for("the scheduler's event", lambda: "Scheduled" in edl("events"))


def test_the_planner_answers_about_the_cluster(edl, digits, tmp_path, namespace):
    """Why, what now, what if; and the same from the saved moment."""
    name = f"{namespace}/digits"
    why = edl("why", "tj/digits")
    assert why.startswith(f"tj/{name} has 2 trainers")
    told = yaml.safe_load(edl("what-if", "--add-nodes", "2", "--shape", "16cpu,64Gi", "-o", "yaml"))
    assert next(job for job in told["jobs"] if job["name"] == f"tj/{name}")["now"] == 2
    edl("snapshot", "save", "-o", "snapshot.json")
    assert namespace in (tmp_path / "snapshot.json").read_text()
    assert edl("why", "tj/digits", "--snapshot", "snapshot.json").startswith(f"tj/{name} has 2 trainers")
    assert f"{name}" in edl("plan", "--snapshot", "snapshot.json")


def test_what_commands_change(edl, digits, jobs, core, namespace):
    """The pinned size, one pod, suspension, the job itself; and a dry run changes nothing."""

    def job():
        return jobs.get_namespaced_custom_object(**GROUP, namespace=namespace, name="digits")

    edl("scale", "tj/digits", "--trainers", "4", "--dry-run")
    assert job()["spec"]["trainer"]["replicas"] == 0
    edl("scale", "tj/digits", "--trainers", "4")
    assert job()["spec"]["trainer"]["replicas"] == 4
    assert "may have 2 to 20 trainers" in edl("scale", "tj/digits", "--trainers", "40", code=4)
    assert edl("drain", "tj/digits", "--trainer", "1") == "pod/digits-trainer-1 is draining\n"
    wait_for("the drained trainer's end", lambda: len(ready(core, namespace)) == 1)
    edl("suspend", "tj/digits")
    assert job()["spec"]["runPolicy"]["suspend"] is True
    edl("resume", "tj/digits")
    assert job()["spec"]["runPolicy"]["suspend"] is False
    edl("delete", "tj/digits")
    edl("wait", "--for=delete", "tj/digits", "--timeout", "180s")


def test_waiting_ends_with_the_condition_or_the_time(edl, digits, jobs, namespace):
    """And with exit code 1 as soon as the job has failed."""
    assert "within 0.1 s" in edl("wait", "--for=condition=Completed", "tj/digits", "--timeout", "100ms", code=5)
    say(jobs, namespace, "Completed")
    assert edl("wait", "--for=condition=Completed", "tj/digits") == "tj/digits condition met\n"
    say(jobs, namespace, "Failed")
    assert "has failed: so" in edl("wait", "--for=condition=Completed", "tj/digits", code=1)


def test_every_refusal_says_what_to_do(edl, digits, account, tmp_path):
    """With the exit code that the help promises."""
    assert "did you mean digits?" in edl("get", "tj/digit", code=3)
    assert "has no context" in edl("get", "tj", "--context", "nowhere", code=3)
    assert "is not a kubeconfig" in edl("get", "tj", code=3, kubeconfig=tmp_path / "gone")
    stranger = account("stranger")
    assert "administrator" in edl("get", "tj", code=4, kubeconfig=stranger)
    assert "administrator" in edl("plan", code=4, kubeconfig=stranger)
    content = yaml.safe_load(stranger.read_text())
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    away = tmp_path / "away"
    away.write_text(yaml.safe_dump(content))
    assert "API server" in edl("get", "tj", code=1, kubeconfig=away)


def test_kubectl_finds_it_as_a_plugin(edl, digits, control_plane, tmp_path, monkeypatch):
    """`kubectl edl`, with kubectl's own kubeconfig variable."""
    plugin = tmp_path / "kubectl-edl"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    kubectl = control_plane.kubectl_command()[0]
    assert edl("get", "tj", program=(kubectl, "edl")).splitlines()[1].startswith("digits")


def test_names_are_completed(edl, digits, control_plane, tmp_path, namespace):
    """TYPE/NAME of the cluster's things; where none can be asked, nothing and no noise."""

    def offered(kubeconfig):
        words = f"edl get --kubeconfig {kubeconfig} -n {namespace} pod/"
        asked = {"_EDL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "6"}
        done = subprocess.run(
            [EDL],
            env={**environment(), **asked},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=BUDGET_S,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout

    # A machine that is busy takes longer than the second after which nothing is offered.
    names = wait_for("names", lambda: offered(control_plane.kubeconfig).strip())
    assert "digits-trainer-1" in names
    assert offered(tmp_path / "gone").strip() == ""
