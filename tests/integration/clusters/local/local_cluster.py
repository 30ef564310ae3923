"""What tests of a run's control plane have in common: the nodes of a machine, a control plane with its user, waits."""

import asyncio
import os
import shutil
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.clusters.local.control_plane.control_plane import ControlPlane
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.domain import Node, Resources
from autoscaler.fault_isolation import JobErrors

PROGRAMS = Path(__file__).resolve().parents[3] / "programs"
DEADLINE_S = 120.0
SLEEPER = (sys.executable, "-c", "import time; time.sleep(1000)")
DEAF = (sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(1000)")


def nodes(count=2, cpu_milli=4000, gpus=()):
    """So many equal nodes, each with its GPU numbers."""
    capacity = Resources(cpu_milli=cpu_milli, memory_bytes=8 << 30, gpu_count=len(gpus), extended=(("pods", 20),))
    return {Node(name=f"node-{number}", allocatable=capacity): tuple(gpus) for number in range(1, count + 1)}


def fail(*_):
    """Stands for a function in which EDL has a fault."""
    raise ArithmeticError("a fault of EDL's")


class Plane:
    """A control plane and its user.  `api`: as kubectl would write."""

    def __init__(self, plane, folder, errors):
        self.kubelet, self.server, self.folder, self.errors = plane.kubelet, plane.server, folder, errors
        self.api = MemoryApi(plane.server, field_manager="kubectl")

    async def add(self, name="p", command=SLEEPER, *, restarts="Never", grace_s=5, cpu="1", **container):
        main = {"name": "main", "command": list(command), "resources": {"requests": {"cpu": cpu}}, **container}
        spec = {"containers": [main], "restartPolicy": restarts, "terminationGracePeriodSeconds": grace_s}
        await self.api.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    async def deploy(self, replicas, *, cpu="1"):
        ports = [{"containerPort": 8080}]
        main = {"name": "web", "command": [sys.executable, str(PROGRAMS / "web.py")], "ports": ports}
        main["resources"] = {"requests": {"cpu": cpu}}
        template = {"metadata": {"labels": {"app": "web"}}}
        template["spec"] = {"containers": [main], "terminationGracePeriodSeconds": 2}
        spec = {"replicas": replicas, "template": template}
        await self.api.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})

    async def scale(self, replicas):
        await self.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, namespace="default")

    async def delete(self, name="p", grace_s=None):
        await self.api.delete(PODS, name, namespace="default", grace_s=grace_s)

    def pods(self):
        return {pod["metadata"]["name"]: pod for pod in self.server.all(PODS)}

    def state(self, name="p"):
        statuses = self.pods()[name]["status"].get("containerStatuses") or [{"state": {}}]
        return statuses[0]

    def phase(self, name="p"):
        return self.pods()[name]["status"]["phase"] if name in self.pods() else None

    def is_ready(self, name="p"):
        conditions = self.pods().get(name, {"status": {}})["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def log(self, name="p"):
        path = self.folder.log_of(name)
        return path.read_text() if path.exists() else ""

    async def until(self, condition, what="it"):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE_S:.0f} s"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(tmp_path, on=None):
    """A control plane whose faults fail the test."""
    folder = make_run_folder(tmp_path, "test", described={"name": "test"})
    crashes = []
    errors = JobErrors(time.monotonic)
    plane = ControlPlane(
        on or nodes(),
        folder,
        working_dir=tmp_path,
        environment=dict(os.environ),
        clock=time.monotonic,
        wall_s=time.time,
        errors=errors,
        on_crash=crashes.append,
    )
    try:
        async with plane:
            yield Plane(plane, folder, errors)
    finally:
        shutil.rmtree(folder.sockets, ignore_errors=True)
    assert crashes == []
