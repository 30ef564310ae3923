"""A whole run: the operator's own term with real etcd, masters, servers and trainers, no stand-in.

What `edl run` prints is tested in `tests/integration/cli`, and faults by the ledger in `tests/integration/faults`.
"""

import asyncio
import json
import shutil
import signal
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import yaml

from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, ForbiddenError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, PODS, PRIORITY_CLASSES, TRAINING_JOBS
from autoscaler.clusters.local.control_plane.socket_client import SocketApi
from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointFolderLockedError, CheckpointLocks
from autoscaler.domain import Resources
from autoscaler.errors import InvalidSpecError
from autoscaler.jobs.life_events import FailureReason
from autoscaler.local_run import local_run, run_snapshot
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_etcd import KEY
from autoscaler.local_run.run_settings import LOCAL_POLICY, RunSettings
from autoscaler.local_run.submission import build_objects
from autoscaler.manifests import parse_files
from autoscaler.manifests.conversion import make_virtual_node
from tests.harness.edl_command import PROGRAMS, edl
from tests.integration.clusters.local.local_cluster import DEADLINE_S

POLICY = replace(LOCAL_POLICY, up_window_s=0.0, quiet_window_s=0.0, victim_age_s=0.0)


class Machine:
    """One run, and its user."""

    def __init__(self, run, working_dir):
        self.run, self.working_dir = run, working_dir
        self.server = run.plane.server

    async def submit(self, *documents):
        file = self.working_dir / "files.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        await self.run.submit(parse_files([file]))

    async def suspend(self, *, on):
        await self.run.api.patch(TRAINING_JOBS, "rows", {"spec": {"runPolicy": {"suspend": on}}}, namespace="default")

    @property
    def checkpoints(self):
        return self.run.folder.checkpoints / "rows"

    def haste(self):
        (self.working_dir / "haste").touch()

    def pods(self, role=""):
        return [name for one in self.server.all(PODS) if role in (name := one["metadata"]["name"])]

    def node_of(self, name):
        return self.server.get(PODS, "default", name)["spec"].get("nodeName")

    def conditions(self):
        status = self.server.get(TRAINING_JOBS, "default", "rows").get("status", {})
        return {one["type"]: one["status"] for one in status.get("conditions", ())}

    def done(self):
        record = self.run.jobs().get("rows")
        return 0 if record is None or record.progress is None else record.progress.done

    def reasons(self):
        return {event["reason"] for event in self.server.all(EVENTS)}

    def kill(self, name):
        assert self.run.kill(name)

    async def until(self, condition, what):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE_S:.0f} s: {self.reasons()}"
            await asyncio.sleep(0.02)


def pod(name, *command, cpu="1", **env):
    main = {"name": name, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    if command:
        main |= {"command": list(command), "env": [{"name": key, "value": value} for key, value in env.items()]}
    return {"spec": {"containers": [main], "terminationGracePeriodSeconds": 5}}


def rows(*, least=1, most=3, servers=2, backoff_limit=6, program=("python", str(PROGRAMS / "rows.py")), **env):
    trainers = pod("trainer", *program, **env)
    return {
        "apiVersion": "edl.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "rows"},
        "spec": {
            "runPolicy": {"backoffLimit": backoff_limit},
            "trainer": {"minReplicas": least, "maxReplicas": most, "template": trainers},
            "parameterServer": {"minReplicas": servers, "template": pod("server", cpu="500m")},
            "checkpoint": {"everySeconds": 1},
        },
    }


def web_service(replicas):
    spec = {"replicas": replicas, "template": pod("web", "sleep", "1000")}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


@asynccontextmanager
async def running(tmp_path, *, nodes=2, cpu_milli=4000, **settings):
    """A run that must not crash."""
    capacity = Resources(cpu_milli=cpu_milli, memory_bytes=8 << 30)
    machines = tuple(make_virtual_node(f"node-{number}", capacity) for number in range(1, nodes + 1))
    told = {"parent": tmp_path / "runs", "working_dir": tmp_path, "policy": POLICY, **settings}
    async with LocalRun(RunSettings(name="test", machines=machines, devices=((),) * nodes, **told)) as run:
        crash = asyncio.ensure_future(run.crashed())
        yield Machine(run, tmp_path)
        assert not crash.done(), crash.exception()
        crash.cancel()


async def test_a_job_loses_a_pod_of_each_role_and_ends_whole(tmp_path):
    """Every sample once per epoch in the last checkpoint (M1), and nothing is left of the job but its object."""
    async with running(tmp_path) as machine:
        await machine.submit(rows())
        await machine.until(lambda: machine.done() > 0, "the first batch")
        await machine.until(lambda: len(machine.pods("trainer")) == 3, "growth to three trainers")
        for name in ("rows-trainer-0", "rows-server-1", "rows-master-local-0"):
            done = machine.done()
            machine.kill(name)
            await machine.until(lambda done=done: machine.done() > done, f"training after the end of {name}")
        machine.haste()
        await machine.until(lambda: machine.conditions().get("Completed") == "True", "completion")
        await machine.until(lambda: not machine.pods(), "the end of all pods")
        assert {"Started", "TrainerFailed", "ServerFailed", "Completed"} <= machine.reasons()
        audit = json.loads(await asyncio.to_thread(edl, "data", "audit", str(machine.checkpoints), "--json"))
        assert audit["is_sound"]
        assert (audit["missing"], audit["quarantined"]) == (0, 0)
        assert audit["trained"] == audit["dataset"]["size"] * audit["dataset"]["epochs"]


async def test_trainers_give_way_to_a_web_service_and_come_back(tmp_path):
    """The planner shrinks the job when a web pod cannot be placed, and grows it again afterwards (A1, A4)."""
    async with running(tmp_path, nodes=1, cpu_milli=4200) as machine:
        await machine.submit(rows(servers=1))
        await machine.until(lambda: len(machine.pods("trainer")) == 3, "growth to three trainers")
        await machine.submit(web_service(1))
        await machine.until(lambda: len(machine.pods("trainer")) == 2, "the shrink")
        (web,) = machine.pods("web")
        await machine.until(lambda: machine.node_of(web), "the web pod's node")
        await machine.run.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace="default")
        await machine.until(lambda: len(machine.pods("trainer")) == 3, "growth again")
        assert "Shrunk" in machine.reasons()


async def test_a_suspended_job_leaves_and_goes_on_where_it_was(tmp_path):
    """All pods leave in order; resumed, the job trains from its last checkpoint."""
    async with running(tmp_path) as machine:
        await machine.submit(rows())
        await machine.until(lambda: machine.done() > 0, "the first batch")
        await machine.suspend(on=True)
        await machine.until(lambda: not machine.pods(), "all pods leaving")
        done = machine.done()
        await machine.suspend(on=False)
        await machine.until(lambda: machine.done() > done, "training again")


async def test_a_job_whose_trainers_keep_failing_fails(tmp_path):
    """With the last lines of one in the condition, and its pods gone."""
    async with running(tmp_path) as machine:
        (tmp_path / "numpy.py").write_text("raise SystemExit('no such matrix')\n")
        await machine.submit(rows(backoff_limit=2, PYTHONPATH=str(tmp_path)))
        await machine.until(lambda: machine.conditions().get("Failed") == "True", "failure")
        await machine.until(lambda: not machine.pods(), "the end of all pods")
        told = [event["note"] for event in machine.server.all(EVENTS) if event["reason"] == "TrainerFailed"]
        assert any("no such matrix" in note for note in told)


async def test_a_job_goes_on_on_the_only_node_after_three_failures_there(tmp_path):
    """All nodes of a run are this machine, so that leaving one out would only keep the job waiting."""
    async with running(tmp_path, nodes=1, with_etcd=False) as machine:
        await machine.submit(rows(backoff_limit=4, most=1, program=["false"]))
        await machine.until(lambda: machine.conditions().get("Failed") == "True", "the fourth failure")
        assert "4 trainer failures in a row" in machine.run.jobs()["rows"].life.message


async def test_files_may_name_a_namespace(tmp_path):
    """Which a run makes for them, as its own folder and etcd."""
    async with running(tmp_path, with_etcd=False) as machine:
        documents = [
            document | {"metadata": document["metadata"] | {"namespace": "team"}}
            for document in (rows(), web_service(1))
        ]
        await machine.submit(*documents)
        await machine.until(lambda: machine.done() > 0, "the first batch")
        assert {pod["metadata"]["namespace"] for pod in machine.server.all(PODS)} == {"team"}
        await machine.run.stop()
        assert machine.pods() == []


async def test_a_backoff_limit_that_is_raised_while_the_job_runs_holds_for_its_master_too(tmp_path):
    """A script that raises is counted by the operator and by the master; neither fails the job at the old limit."""
    script = (PROGRAMS / "rows.py").read_text().replace("table.pull()", "raise ValueError('no such record')")
    (tmp_path / "no.py").write_text(script)
    async with running(tmp_path) as machine:
        await machine.submit(rows(backoff_limit=3, most=1, program=("python", str(tmp_path / "no.py"))))
        await machine.until(lambda: "TrainerFailed" in machine.reasons(), "the first failure")
        patch = {"spec": {"runPolicy": {"backoffLimit": 5}}}
        await machine.run.api.patch(TRAINING_JOBS, "rows", patch, namespace="default")
        await machine.until(lambda: machine.conditions().get("Failed") == "True", "failure")
        life = machine.run.jobs()["rows"].life
        assert life.failure_reason is FailureReason.BACKOFF_LIMIT_EXCEEDED
        message = life.message
        assert "(backoffLimit 5)" in message
        assert "(backoffLimit 3)" not in message


async def test_a_run_that_is_stopped_leaves_in_order_and_says_where_its_jobs_stood(tmp_path):
    """As after Ctrl-C: the job's last checkpoint holds all that was trained, and no pod is left."""
    async with running(tmp_path) as machine:
        await machine.submit(rows(), web_service(1))
        await machine.until(lambda: machine.done() > 0, "the first batch")
        await machine.run.stop()
        assert machine.pods() == []
        assert machine.run.outcomes() == {"rows": "Running"}
        order = [event.object for event in machine.run.recorder.events if event.reason == "Gone"]
    trainers, servers = ([at for at, name in enumerate(order) if role in name] for role in ("trainer", "server"))
    assert max(trainers) < min(servers) <= max(servers) < order.index("pod/rows-master-local-0")
    manifest = json.loads(machine.run.folder.manifest.read_text())
    assert manifest["jobs"] == {"rows": "Running"}
    assert "ended" in manifest
    audit = json.loads(await asyncio.to_thread(edl, "data", "audit", str(machine.checkpoints), "--json"))
    assert audit["trained"] >= machine.done() > 0


async def test_a_job_that_the_operator_cannot_move_is_told_to_leave_when_the_run_stops(tmp_path):
    """As while it pauses after a fault: each role gets its SIGTERM and its grace, in the usual order (M7)."""

    async def fail(_name):
        raise ValueError("a fault of EDL")

    async with running(tmp_path, with_etcd=False) as machine:
        await machine.submit(rows())
        await machine.until(lambda: machine.done() > 0, "the first batch")
        machine.run.term.jobs.reconcile = fail
        await machine.run.stop()
        assert machine.pods() == []
        events = list(machine.run.recorder.events)
    told = [event.object for event in events if event.reason == "Leaving"]
    trainers, servers = ([at for at, name in enumerate(told) if role in name] for role in ("trainer", "server"))
    assert max(trainers) < min(servers) <= max(servers) < told.index("pod/rows-master-local-0")
    assert not any(event.reason == "GraceOver" for event in events)


async def test_objects_that_cannot_be_shown_end_no_run(tmp_path, monkeypatch):
    """A fault with a node, a Deployment or a whole sample is recorded, and the others are shown."""
    shown = run_snapshot._node_line

    def fail(*_):
        raise ValueError("a fault of EDL")

    async with running(tmp_path, with_etcd=False) as machine:
        await machine.submit(web_service(1))
        await machine.until(machine.pods, "the web pod")
        monkeypatch.setattr(
            run_snapshot, "_node_line", lambda node, pods: fail() if node.name == "node-1" else shown(node, pods)
        )
        monkeypatch.setattr(run_snapshot, "_deployment_line", fail)
        snapshot = machine.run.snapshot()
        assert [node.name for node in snapshot.nodes] == ["node-2"]
        assert snapshot.deployments == ()
        assert snapshot.pods
        monkeypatch.setattr(local_run, "sample_of", fail)
        events = machine.run.recorder.events
        await machine.until(lambda: any("samples" in event.object for event in events), "the record of the fault")


async def test_a_run_without_etcd_trains_to_the_end(tmp_path):
    """Its masters keep their state in memory."""
    async with running(tmp_path, with_etcd=False) as machine:
        machine.haste()
        await machine.submit(rows())
        await machine.until(machine.run.are_jobs_over, "the end")
        assert machine.run.outcomes() == {"rows": "Completed"}
        assert machine.run.failed_jobs() == ()


async def test_training_goes_on_after_the_end_of_etcd(tmp_path):
    """It starts again on its data where masters look for it (M5)."""
    async with running(tmp_path) as machine:
        await machine.submit(rows())
        await machine.until(lambda: machine.done() > 0, "the first batch")
        machine.run.plane.kubelet.processes.signal(KEY, signal.SIGKILL)
        await machine.until(lambda: starts_of_etcd(machine) == 2, "a second start of etcd")
        machine.haste()
        await machine.until(machine.run.are_jobs_over, "the end")
        assert machine.run.outcomes() == {"rows": "Completed"}


def starts_of_etcd(machine):
    return sum((event.object, event.kind) == ("etcd/etcd", "Started") for event in machine.run.recorder.events)


async def test_a_default_class_of_the_files_is_level_with_edls_own(tmp_path):
    """Pods without a class, and EDL's, must not preempt each other; so the operator has nothing to complain of."""
    everyday = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "everyday"}}
    async with running(tmp_path, with_etcd=False) as machine:
        await machine.submit(everyday | {"value": 50, "globalDefault": True}, rows())
        values = {one["metadata"]["name"]: one["value"] for one in machine.server.all(PRIORITY_CLASSES)}
        assert values == {"everyday": 50, "edl-core": 50, "edl-surplus": 50}
        await machine.until(lambda: machine.done() > 0, "the first batch")


async def test_a_name_that_is_taken_is_refused(tmp_path):
    async with running(tmp_path, with_etcd=False) as machine:
        await machine.submit(web_service(1))
        with pytest.raises(AlreadyExistsError, match="web"):
            await machine.submit(web_service(2))


async def test_a_script_that_just_ends_has_failed(tmp_path):
    """It would otherwise be started for ever; what it should have done is said."""
    async with running(tmp_path, with_etcd=False) as machine:
        await machine.submit(rows(program=["true"], backoff_limit=1))
        await machine.until(machine.run.are_jobs_over, "the end")
        assert machine.run.failed_jobs() == ("rows",)
        assert "opened no session with its job" in machine.run.jobs()["rows"].life.message


async def test_a_command_that_does_not_exist_fails_the_job_by_its_name(tmp_path):
    async with running(tmp_path, with_etcd=False) as machine:
        await machine.submit(rows(program=["no-such-program"], backoff_limit=1))
        await machine.until(machine.run.are_jobs_over, "the end")
        assert "no-such-program" in machine.run.jobs()["rows"].life.message


async def test_a_deleted_job_leaves_nothing_and_its_name_is_free_again(tmp_path):
    """The next job of that name is another one: it meets nothing of the first in etcd."""
    async with running(tmp_path) as machine:
        await machine.submit(rows())
        await machine.until(lambda: machine.done() > 0, "the first batch")
        await machine.run.api.delete(TRAINING_JOBS, "rows", namespace="default")
        await machine.until(lambda: not machine.server.all(TRAINING_JOBS) and not machine.pods(), "the job's end")
        assert machine.run.are_jobs_over()
        shutil.rmtree(machine.checkpoints, ignore_errors=True)
        machine.haste()
        await machine.submit(rows())
        await machine.until(lambda: machine.conditions().get("Completed") == "True", "completion")


async def test_a_job_that_the_operator_would_refuse_is_refused_at_once(tmp_path):
    """It would wait for ever; nothing of the files is submitted."""
    hasty = rows()
    hasty["spec"]["trainer"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    async with running(tmp_path, with_etcd=False) as machine:
        with pytest.raises(InvalidSpecError, match="terminationGracePeriodSeconds"):
            await machine.submit(web_service(1), hasty)
        assert machine.pods() == []
        assert not machine.server.all(DEPLOYMENTS)


async def test_a_job_created_over_the_socket_has_its_checkpoint_folder_to_itself(tmp_path):
    """As one from the run's files: refused while another run holds the folder, which is free again when it is gone."""
    folder = tmp_path / "shared"
    others = CheckpointLocks(run="another", working_dir=tmp_path, own=tmp_path / "another")
    async with running(tmp_path, with_etcd=False) as machine:
        job = rows(most=1, servers=1, program=("sleep", "1000"))
        job["spec"]["checkpoint"]["uri"] = str(folder)
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        ((_, body),) = build_objects(parse_files([tmp_path / "job.yaml"]), tmp_path)
        api = SocketApi(machine.run.folder.control_socket())
        with others:
            others.lock("default/held", str(folder))
            with pytest.raises(ForbiddenError, match="in use by tj/held of run another"):
                await api.create(TRAINING_JOBS, body)
        await api.create(TRAINING_JOBS, body)
        with others, pytest.raises(CheckpointFolderLockedError, match="in use by tj/rows of run"):
            others.lock("default/held", str(folder))
        await machine.until(machine.pods, "its pods")
        await api.delete(TRAINING_JOBS, "rows", namespace="default")

        def is_free():
            with others, suppress(CheckpointFolderLockedError):
                return others.lock("default/held", str(folder)) is not None
            return False

        await machine.until(is_free, "the end of its lock")
        assert machine.server.all(TRAINING_JOBS) == []
