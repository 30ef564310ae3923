"""The operator's own term over the control plane of one machine: real masters, servers and trainers, no stand-in.

It is what `edl run` is to become (ADR 0224), and proves the operator against the programs that it runs on a cluster.
"""

import asyncio
import json
import os
import shutil
import signal
import time
from contextlib import asynccontextmanager

from autoscaler.clusters.kubernetes.api.kinds import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    TRAINING_JOBS,
)
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.clusters.local.control_plane.control_plane import ControlPlane
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.domain import Policy, Reclaim
from autoscaler.fault_isolation import JobErrors
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.operator.controllers.definition_check import NAME, NEEDED, REVISION
from autoscaler.operator.leader_term import LeaderTerm, Rhythm, TermSettings
from autoscaler.operator.metrics import Metrics
from tests.harness.edl_command import PROGRAMS, edl
from tests.integration.clusters.local.local_cluster import DEADLINE_S, nodes

POLICY = Policy(reclaim=Reclaim.PLANNER, burst_window_s=0.0, up_window_s=0.0, quiet_window_s=0.0, victim_age_s=0.0)


class Machine:
    """One machine under one operator, and its user."""

    def __init__(self, plane, term, folder, working_dir):
        self.plane, self.term, self.folder, self.working_dir = plane, term, folder, working_dir
        self.api = MemoryApi(plane.server, field_manager="kubectl")

    async def submit(self, *, least=1, most=3, servers=2, backoff_limit=6):
        spec = {
            "priorityClassName": "edl-core",
            "runPolicy": {"backoffLimit": backoff_limit},
            "trainer": {
                "minReplicas": least,
                "maxReplicas": most,
                "template": pod("python", str(PROGRAMS / "rows.py")),
            },
            "parameterServer": {"minReplicas": servers, "template": pod(cpu="500m")},
            "checkpoint": {"uri": str(self.checkpoints), "everySeconds": 1},
        }
        await self.api.create(TRAINING_JOBS, {"metadata": {"name": "rows", "namespace": "default"}, "spec": spec})

    async def deploy_web(self, replicas):
        template = {"metadata": {"labels": {"app": "web"}}, **pod("sleep", "1000")}
        body = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": replicas, "template": template},
        }
        await self.api.create(DEPLOYMENTS, body)

    @property
    def checkpoints(self):
        return self.folder.checkpoints / "rows"

    def haste(self):
        (self.working_dir / "haste").touch()

    def pods(self, role=""):
        return [name for one in self.plane.server.all(PODS) if role in (name := one["metadata"]["name"])]

    def node_of(self, name):
        return self.plane.server.get(PODS, "default", name)["spec"].get("nodeName")

    def conditions(self):
        status = self.plane.server.get(TRAINING_JOBS, "default", "rows").get("status", {})
        return {one["type"]: one["status"] for one in status.get("conditions", ())}

    def record(self):
        return self.term.store.records.get("default/rows")

    def done(self):
        record = self.record()
        return 0 if record is None or record.progress is None else record.progress.done

    def reasons(self):
        return {event["reason"] for event in self.plane.server.all(EVENTS)}

    def kill(self, name):
        assert self.plane.kubelet.send_signal("default", name, signal.SIGKILL)

    async def until(self, condition, what):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE_S:.0f} s: {self.reasons()}"
            await asyncio.sleep(0.02)


def pod(*command, cpu="1"):
    main = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    if command:
        main |= {"image": "none", "command": list(command)}
    return {"spec": {"containers": [main], "terminationGracePeriodSeconds": 5}}


@asynccontextmanager
async def operated(tmp_path, etcd, on=None):
    """A machine whose control plane and term must not crash."""
    folder = make_run_folder(tmp_path, "test", described={"name": "test"})
    crashes = []
    plane = ControlPlane(
        on or nodes(),
        folder,
        working_dir=tmp_path,
        environment=dict(os.environ),
        clock=time.monotonic,
        wall_s=time.time,
        errors=JobErrors(time.monotonic),
        on_crash=crashes.append,
    )
    settings = TermSettings(
        identity="edl-test",
        policy=POLICY,
        build=BuildSettings(
            image="none",
            etcd=EtcdAccess(endpoints=",".join(etcd.endpoints)),
            reclaim=Reclaim.PLANNER,
            elastic_servers=True,
            moves_servers=True,
        ),
        socket_of=plane.socket_of,
        rhythm=Rhythm(poll_every_s=0.25, poll_tick_s=0.1, settle_every_s=0.02),
    )
    definition = {"metadata": {"name": NAME, "annotations": {REVISION: str(NEEDED)}}}
    try:
        async with plane, MasterConnections() as masters:
            api = MemoryApi(plane.server)
            await api.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            term = LeaderTerm(api, settings, Metrics(), masters)
            leading = asyncio.create_task(term.run(), name="the term")
            try:
                yield Machine(plane, term, folder, tmp_path)
            finally:
                leading.cancel()
                (ended,) = await asyncio.gather(leading, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError), ended
    finally:
        shutil.rmtree(folder.sockets, ignore_errors=True)
    assert crashes == []


async def test_a_job_loses_a_pod_of_each_role_and_ends_whole(tmp_path, etcd):
    """Every sample once per epoch in the last checkpoint (M1), and nothing is left of the job but its object."""
    async with operated(tmp_path, etcd) as machine:
        await machine.submit()
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


async def test_trainers_give_way_to_a_web_service_and_come_back(tmp_path, etcd):
    """The planner shrinks the job when a web pod cannot be placed, and grows it again afterwards (A1, A4)."""
    async with operated(tmp_path, etcd, on=nodes(1, cpu_milli=4200)) as machine:
        await machine.submit(servers=1)
        await machine.until(lambda: len(machine.pods("trainer")) == 3, "growth to three trainers")
        await machine.deploy_web(1)
        await machine.until(lambda: len(machine.pods("trainer")) == 2, "the shrink")
        (web,) = machine.pods("web")
        await machine.until(lambda: machine.node_of(web), "the web pod's node")
        await machine.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace="default")
        await machine.until(lambda: len(machine.pods("trainer")) == 3, "growth again")
        assert "Shrunk" in machine.reasons()


async def test_a_suspended_job_leaves_and_goes_on_where_it_was(tmp_path, etcd):
    """All pods leave in order; resumed, the job trains from its last checkpoint."""
    async with operated(tmp_path, etcd) as machine:
        await machine.submit()
        await machine.until(lambda: machine.done() > 0, "the first batch")
        await machine.api.patch(TRAINING_JOBS, "rows", {"spec": {"runPolicy": {"suspend": True}}}, namespace="default")
        await machine.until(lambda: not machine.pods(), "all pods leaving")
        done = machine.done()
        await machine.api.patch(TRAINING_JOBS, "rows", {"spec": {"runPolicy": {"suspend": False}}}, namespace="default")
        await machine.until(lambda: machine.done() > done, "training again")


async def test_a_job_whose_trainers_keep_failing_fails(tmp_path, etcd):
    """With the last lines of one in the condition, and its pods gone."""
    async with operated(tmp_path, etcd) as machine:
        (tmp_path / "numpy.py").write_text("raise SystemExit('no such matrix')\n")
        await machine.submit(backoff_limit=2)
        machine.plane.kubelet._commands.environment["PYTHONPATH"] = str(tmp_path)
        await machine.until(lambda: machine.conditions().get("Failed") == "True", "failure")
        await machine.until(lambda: not machine.pods(), "the end of all pods")
        told = [event["note"] for event in machine.plane.server.all(EVENTS) if event["reason"] == "TrainerFailed"]
        assert any("no such matrix" in note for note in told)
