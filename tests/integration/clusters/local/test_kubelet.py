"""The control plane of a run with real processes: pods come, serve, restart, leave and end as a kubelet lets them."""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, SECRETS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, garbage_collection
from autoscaler.clusters.local.control_plane import control_plane, deployment_controller, kubelet, pod_scheduler
from autoscaler.clusters.local.control_plane.control_plane import ControlPlane
from autoscaler.clusters.local.machine.ports import PortAllocator
from autoscaler.clusters.local.machine.processes import MachineFullError, Processes
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.errors import TemporaryError
from autoscaler.fault_isolation import JobErrors
from tests.integration.clusters.local.local_cluster import DEADLINE_S, PROGRAMS, nodes

SLEEPER = (sys.executable, "-c", "import time; time.sleep(1000)")
DEAF = (sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(1000)")


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


async def test_a_pod_is_bound_and_runs(tmp_path):
    """It gets a node, a process and its log; a pod without a port is ready at once."""
    async with running(tmp_path) as plane:
        await plane.add(command=(sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(1000)"))
        await plane.until(lambda: plane.is_ready() and "hello" in plane.log(), "a running pod")
        assert plane.phase() == "Running"
        assert plane.pods()["p"]["spec"]["nodeName"] in {"node-1", "node-2"}
        told = plane.pods()["p"]["metadata"]["annotations"]
        assert await asyncio.to_thread(_log_of, told["edl.dev/pid"]) == str(plane.folder.log_of("p"))
        assert (told["edl.dev/port"], told["edl.dev/gpus"]) == ("", "")


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (7, "Failed")])
async def test_a_pod_that_never_restarts_ends_with_its_exit_code(tmp_path, code, phase):
    """The operator judges the end of a trainer by it, with the last lines of the log."""
    async with running(tmp_path) as plane:
        await plane.add(command=(sys.executable, "-c", f"print('last words'); raise SystemExit({code})"))
        await plane.until(lambda: plane.phase() == phase, phase)
        assert plane.state()["state"]["terminated"]["exitCode"] == code
        assert not plane.is_ready()
        lines = [line async for line in plane.api.log("p", namespace="default", tail_lines=10)]
        assert lines == [b"last words\n"]


async def test_a_killed_pod_tells_the_signal_as_a_shell_does(tmp_path):
    """128 and the signal's number."""
    async with running(tmp_path) as plane:
        await plane.add()
        await plane.until(plane.is_ready)
        assert plane.kubelet.send_signal("default", "p", signal.SIGKILL)
        await plane.until(lambda: plane.phase() == "Failed")
        assert plane.state()["state"]["terminated"]["exitCode"] == 137


async def test_a_command_that_cannot_be_run_ends_with_127(tmp_path):
    """As in a shell; the system's words stand in the log."""
    async with running(tmp_path) as plane:
        await plane.add(command=("/no/such/program",))
        await plane.until(lambda: plane.phase() == "Failed")
        assert plane.state()["state"]["terminated"]["exitCode"] == 127
        assert "No such file" in plane.log()


async def test_a_pod_that_restarts_does_so_at_once_and_then_with_pauses(tmp_path):
    """A loop of crashes does not burn the machine, and its status says why nothing runs."""
    async with running(tmp_path) as plane:
        await plane.add(command=(sys.executable, "-c", "print('no table'); raise SystemExit(7)"), restarts="Always")
        await plane.until(lambda: plane.state().get("restartCount", 0) >= 1, "a restart")
        await plane.until(
            lambda: plane.state()["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff", "a pause"
        )
        assert plane.state()["lastState"]["terminated"]["exitCode"] == 7
        assert "| no table" in plane.state()["lastState"]["terminated"]["message"]
        assert plane.pods()["p"]["metadata"]["annotations"]["edl.dev/pid"] == ""
        assert plane.pods()["p"]["spec"]["nodeName"]


async def test_a_deleted_pod_is_told_and_gone_once_it_has_left(tmp_path):
    """SIGTERM first; how it ended is shown before it is gone."""
    program = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(3)); print('on', flush=True)"
    async with running(tmp_path) as plane:
        await plane.add(command=(sys.executable, "-c", f"{program}\nwhile True: time.sleep(0.01)"))
        await plane.until(lambda: "on" in plane.log())
        await plane.delete()
        await plane.until(lambda: plane.phase() in {"Failed", None}, "its end")
        if plane.phase() is not None:
            assert plane.state()["state"]["terminated"]["exitCode"] == 3
        await plane.until(lambda: plane.phase() is None, "its leaving")
        assert [change.after["status"]["phase"] for change in _of(plane, "p")][-1] == "Failed"


async def test_a_deaf_pod_is_killed_after_its_grace(tmp_path):
    """No sooner, and not much later."""
    async with running(tmp_path) as plane:
        await plane.add(command=DEAF, grace_s=1)
        await plane.until(lambda: "on" in plane.log())
        told_at_s = time.monotonic()
        await plane.delete()
        await plane.until(lambda: plane.phase() is None)
        assert time.monotonic() - told_at_s >= 1.0
        (last,) = _of(plane, "p")[-1].after["status"]["containerStatuses"]
        assert last["state"]["terminated"]["reason"] == "GraceOver"


async def test_a_failing_deployment_postpones_no_kill(tmp_path, monkeypatch):
    """The end of a grace is set once, and the failures of a Deployment go with it (A3, A11)."""
    monkeypatch.setattr(control_plane, "RETRY_EVERY_S", 0.1)
    async with running(tmp_path) as plane:
        await plane.add(command=DEAF, grace_s=2)
        await plane.until(lambda: "on" in plane.log())
        monkeypatch.setattr(deployment_controller, "plan_replicas", fail)
        await plane.deploy(1)
        await plane.until(lambda: plane.errors.has_failures, "a failure")
        told_at_s = time.monotonic()
        await plane.delete()
        await plane.until(lambda: plane.phase() is None, "its end")
        assert 2.0 <= time.monotonic() - told_at_s < 4.0
        await plane.api.delete(DEPLOYMENTS, "web", namespace="default")
        await plane.until(lambda: not plane.errors.has_failures, "the end of its failures")


async def test_a_pod_that_is_shown_again_keeps_the_end_of_its_grace(tmp_path):
    """However often anything changes about it while it leaves."""
    async with running(tmp_path) as plane:
        await plane.add(command=DEAF, grace_s=2)
        await plane.until(lambda: "on" in plane.log())
        told_at_s = time.monotonic()
        await plane.delete()
        while (pod := plane.pods().get("p")) is not None:
            assert time.monotonic() - told_at_s < 4.0
            plane.kubelet.sync(pod)
            await asyncio.sleep(0.1)
        assert time.monotonic() - told_at_s >= 2.0


async def test_failures_with_a_pod_that_never_ran_go_with_it(tmp_path, monkeypatch):
    """Nothing is tried again for an object that is gone."""
    async with running(tmp_path, on=nodes(1, cpu_milli=500)) as plane:
        monkeypatch.setattr(pod_scheduler, "_bind", fail)
        await plane.add()
        await plane.until(lambda: plane.errors.has_failures, "a failure")
        await plane.delete()
        await plane.until(lambda: not plane.errors.has_failures, "the end of its failures")


async def test_a_grace_may_be_shortened(tmp_path):
    """As `kubectl delete --grace-period=1` said after a longer one."""
    async with running(tmp_path) as plane:
        await plane.add(command=DEAF, grace_s=1000)
        await plane.until(lambda: "on" in plane.log())
        await plane.delete()
        await plane.delete(grace_s=1)
        await plane.until(lambda: plane.phase() is None, "its end")


async def test_a_pod_deleted_by_force_leaves_no_process(tmp_path):
    """Its object is gone at once; what runs of it is killed."""
    async with running(tmp_path) as plane:
        await plane.add(command=DEAF)
        await plane.until(lambda: "on" in plane.log())
        (run,) = plane.kubelet._runs.values()
        await plane.delete(grace_s=0)
        assert plane.phase() is None
        await plane.until(lambda: not plane.kubelet.processes.is_running(run.key), "the end of its process")


async def test_a_pod_deleted_before_it_has_a_node_is_gone_at_once(tmp_path):
    """There is nothing to wait for."""
    async with running(tmp_path, on=nodes(1, cpu_milli=500)) as plane:
        await plane.add()
        await plane.until(lambda: "conditions" in plane.pods()["p"]["status"], "a verdict")
        await plane.delete()
        assert plane.phase() is None


async def test_a_full_machine_starts_nothing_and_fails_nobody(tmp_path, monkeypatch):
    """It is tried again until there is room; the pod says why it waits."""
    real, refusals = Processes.start, []

    async def start(self, key, command):
        if not refusals:
            refusals.append(key)
            raise MachineFullError("Resource temporarily unavailable")
        return await real(self, key, command)

    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(kubelet, "NO_ROOM_PAUSE_S", 0.1)
    async with running(tmp_path) as plane:
        await plane.add()
        await plane.until(lambda: plane.state()["state"].get("waiting", {}).get("reason") == "NoRoom", "the reason")
        await plane.until(plane.is_ready, "its start")


async def test_a_machine_that_stays_full_is_asked_ever_less_often(tmp_path, monkeypatch):
    """No try counts as a restart, for nothing has started; and a pod that waits may leave."""

    async def start(*_):
        raise MachineFullError("Too many open files")

    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(kubelet, "NO_ROOM_PAUSE_S", 0.1)
    async with running(tmp_path) as plane:
        await plane.add(restarts="Always")
        message = lambda: plane.state()["state"].get("waiting", {}).get("message", "")  # noqa: E731
        await plane.until(lambda: message() == "Too many open files; starts again in 2 s", "a longer pause")
        assert (plane.phase(), plane.state()["restartCount"]) == ("Pending", 0)
        await plane.delete()
        await plane.until(lambda: plane.phase() is None, "its end")


async def test_a_pod_deleted_during_a_refused_start_is_gone(tmp_path, monkeypatch):
    """Nothing is started for it once more."""
    told, refuse, starts = asyncio.Event(), asyncio.Event(), []

    async def start(_self, key, _command):
        starts.append(key)
        told.set()
        await refuse.wait()
        raise MachineFullError("Resource temporarily unavailable")

    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(kubelet, "NO_ROOM_PAUSE_S", 0.1)
    async with running(tmp_path) as plane:
        await plane.add()
        await told.wait()
        await plane.delete()
        await asyncio.sleep(0.1)  # the kubelet is shown it while its start is under way
        refuse.set()
        await plane.until(lambda: plane.phase() is None, "its end")
        assert len(starts) == 1


async def test_web_pods_are_ready_when_their_ports_answer_and_give_way(tmp_path):
    """Each has a port of its own; what fits nowhere waits for room, and takes it."""
    async with running(tmp_path, on=nodes(1, cpu_milli=2000)) as plane:
        await plane.deploy(3)
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 2, "two ready pods")
        answers = set()
        for run in plane.kubelet._runs.values():
            reply = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{run.port}/", timeout=60)
            answers.add(reply.read().decode())
            reply.close()
        assert len(answers) == 2
        (waiting,) = [name for name in plane.pods() if not plane.pods()[name]["spec"].get("nodeName")]
        ready = next(name for name in plane.pods() if plane.is_ready(name))
        await plane.delete(ready)
        await plane.until(lambda: plane.is_ready(waiting), "the room")
        await plane.scale(0)
        await plane.until(lambda: not plane.pods(), "the end of all")


async def test_a_web_pod_that_was_killed_comes_back_on_its_node_and_tells_the_signal(tmp_path):
    """It keeps its room meanwhile: what waits for some does not get it."""
    async with running(tmp_path, on=nodes(1, cpu_milli=2000)) as plane:
        await plane.deploy(3)
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 2, "two ready pods")
        (waiting,) = [name for name in plane.pods() if not plane.pods()[name]["spec"].get("nodeName")]
        killed = next(name for name in plane.pods() if name != waiting)
        assert plane.kubelet.send_signal("default", killed, signal.SIGKILL)
        await plane.until(lambda: plane.state(killed).get("restartCount") == 1 and plane.is_ready(killed), "its return")
        assert plane.state(killed)["lastState"]["terminated"]["exitCode"] == 137
        assert not plane.pods()[waiting]["spec"].get("nodeName")


async def test_a_pod_that_dies_as_the_run_ends_is_not_started_again(tmp_path):
    """Its process would be asked of a supervisor that is leaving: the run's end was told as a crash."""
    async with running(tmp_path) as plane:
        await plane.deploy(1)
        await plane.until(lambda: all(map(plane.is_ready, plane.pods())) and plane.pods(), "a ready web pod")
        (name,), (run,) = plane.pods(), plane.kubelet._runs.values()
        await plane.kubelet.close()
        assert plane.kubelet.send_signal("default", name, signal.SIGKILL)
        await plane.until(lambda: not plane.kubelet.processes.is_running(run.key), "its end")
        assert run.starts == 1, "it waits for another start"


async def test_the_room_is_never_overbooked_while_pods_come_and_go(tmp_path):
    """Requests of bound and leaving pods stay within each node at every change (A2)."""
    async with running(tmp_path, on=nodes(2, cpu_milli=2000)) as plane:
        await plane.deploy(1)
        for replicas in (6, 1, 4, 0, 5):
            await plane.scale(replicas)
            for _ in range(20):
                await asyncio.sleep(0.02)
                for node in ("node-1", "node-2"):
                    assert sum(pod["spec"].get("nodeName") == node for pod in plane.pods().values()) <= 2
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 4, "a full machine")


async def test_a_cordoned_node_is_left_for_others(tmp_path):
    """As `edl drain node/...` does: it takes nothing new, and who is evicted comes again elsewhere."""
    async with running(tmp_path) as plane:
        await plane.deploy(4)
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 4, "four ready web pods")
        await plane.api.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
        for name, pod in plane.pods().items():
            if pod["spec"]["nodeName"] == "node-1":
                await plane.delete(name)
        places = lambda: [pod["spec"].get("nodeName") for pod in plane.pods().values()]  # noqa: E731
        await plane.until(
            lambda: places() == ["node-2"] * 4 and all(map(plane.is_ready, plane.pods())), "an empty node"
        )


async def test_gpus_are_a_pods_alone(tmp_path):
    """Nobody sees another's devices; they are free again once the pod is gone."""
    show = (
        sys.executable,
        "-c",
        "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(99)",
    )
    wants = {"resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}
    async with running(tmp_path, on=nodes(1, gpus=(4, 5))) as plane:
        for name in ("a", "b"):
            await plane.add(name, command=show, **wants)
        await plane.until(lambda: plane.log("a") and plane.log("b"))
        assert {plane.log("a").strip(), plane.log("b").strip()} == {"4", "5"}
        freed = plane.log("a").strip()
        await plane.delete("a")
        await plane.until(lambda: plane.phase("a") is None)
        await plane.add("c", command=show, **wants)
        await plane.until(lambda: plane.log("c"))
        assert plane.log("c").strip() == freed


async def test_a_gpu_is_free_as_soon_as_its_process_has_ended(tmp_path, monkeypatch):
    """Not only once the pod's object is gone: one that waits for the device gets it at its first try."""
    monkeypatch.setattr(kubelet, "GONE_AFTER_S", 60.0)
    program = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('on', flush=True)"
    wants = {"resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}
    failed = []
    async with running(tmp_path, on=nodes(1, gpus=(4,))) as plane:
        monkeypatch.setattr(plane.errors, "record_failure", lambda *failure: failed.append(failure))
        await plane.add("first", command=(sys.executable, "-c", f"{program}\nwhile True: time.sleep(0.01)"), **wants)
        await plane.until(lambda: "on" in plane.log("first"))
        await plane.add("second", **wants)
        await plane.until(lambda: "conditions" in plane.pods()["second"]["status"], "that it waits")
        await plane.delete("first")
        await plane.until(lambda: plane.is_ready("second") or failed, "that it runs")
        assert failed == []
        assert plane.phase("first") == "Succeeded"
        assert plane.pods()["second"]["metadata"]["annotations"]["edl.dev/gpus"] == "4"


async def test_a_member_finds_its_secret_as_files_and_its_master_at_a_socket(tmp_path):
    """What a container mounts is a folder of the run, for its owner's eyes only; ports and TLS are for networks."""
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    told = {
        "EDL_JOB": "default.digits.0123abcd",
        "EDL_ROLE": "server",
        "EDL_MASTER": "digits-master.default.svc:7164",
        "EDL_LISTEN": "0.0.0.0:7166",
        "EDL_TOKEN_FILE": "/var/run/edl/identity/token",
        "EDL_TLS_DIR": "/var/run/edl/identity",
    }
    async with running(tmp_path) as plane:
        secret = {"metadata": {"name": "digits-member", "namespace": "default"}, "data": {"token": "c2VjcmV0"}}
        await plane.api.create(SECRETS, secret)
        volumes = [{"name": "edl-identity", "secret": {"secretName": "digits-member"}}]
        env = [{"name": name, "value": value} for name, value in told.items()]
        env.append({"name": "EDL_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
        main = {"name": "main", "command": [sys.executable, "-c", show], "env": env}
        spec = {"containers": [main], "volumes": volumes, "restartPolicy": "Never"}
        labels = {"edl.dev/job": "digits", "edl.dev/role": "server"}
        metadata = {"name": "digits-server-0", "namespace": "default", "labels": labels}
        await plane.api.create(PODS, {"metadata": metadata, "spec": spec})
        await plane.until(lambda: plane.phase("digits-server-0") == "Succeeded")
        found = json.loads(plane.log("digits-server-0"))
        token = found["EDL_TOKEN_FILE"]
        assert await asyncio.to_thread(_read_private, Path(token)) == "secret"
        assert found["EDL_MASTER"].startswith(f"unix:{plane.folder.sockets}/")
        assert found["EDL_LISTEN"] == f"unix:{plane.folder.sockets}"
        assert found["EDL_NAME"] == "digits-server-0"
        assert "EDL_TLS_DIR" not in found


async def test_a_member_waits_for_its_secret(tmp_path):
    """As with a kubelet: its status says what is missing, and no other pod notices."""
    async with running(tmp_path) as plane:
        volumes = [{"name": "edl-identity", "secret": {"secretName": "digits-member"}}]
        env = [{"name": "EDL_JOB", "value": "default.digits.0123abcd"}, {"name": "EDL_ROLE", "value": "trainer"}]
        main = {"name": "main", "command": list(SLEEPER), "env": env}
        labels = {"edl.dev/job": "digits", "edl.dev/role": "trainer"}
        spec = {"containers": [main], "volumes": volumes, "restartPolicy": "Never"}
        await plane.api.create(
            PODS, {"metadata": {"name": "t", "namespace": "default", "labels": labels}, "spec": spec}
        )
        waiting = lambda: plane.state("t")["state"].get("waiting", {})  # noqa: E731
        await plane.until(lambda: waiting().get("reason") == "CreateContainerConfigError", "its waiting")
        assert 'secrets "digits-member" not found' in waiting()["message"]
        await plane.add()
        await plane.until(plane.is_ready, "another pod")
        await plane.api.create(SECRETS, {"metadata": {"name": "digits-member", "namespace": "default"}, "data": {}})
        await plane.until(lambda: plane.is_ready("t"), "its start")


async def test_a_web_pod_waits_while_no_port_is_free(tmp_path, monkeypatch):
    """It is that pod's alone, and takes one as soon as there is one."""
    real, refusals = PortAllocator.allocate, []

    def allocate(self):
        if not refusals:
            refusals.append(self)
            raise TemporaryError("no free port", retry_after_s=1.0)
        return real(self)

    monkeypatch.setattr(PortAllocator, "allocate", allocate)
    async with running(tmp_path) as plane:
        await plane.deploy(1)
        await plane.until(lambda: plane.pods() and all(map(plane.is_ready, plane.pods())), "a ready web pod")
        assert refusals


async def test_a_web_pod_that_knows_of_a_job_is_still_one(tmp_path):
    """EDL's labels, not what its environment says, make a pod a member: it gets its port and its readiness."""
    async with running(tmp_path) as plane:
        env = [{"name": "EDL_JOB", "value": "digits"}]
        command = (sys.executable, str(PROGRAMS / "web.py"))
        await plane.add(command=command, env=env, ports=[{"containerPort": 8080}])
        await plane.until(plane.is_ready, "its readiness")
        assert plane.pods()["p"]["metadata"]["annotations"]["edl.dev/port"]


async def test_more_nodes_than_watches_remember_changes_are_a_machine_as_well(tmp_path):
    """As with `edl run --nodes 1000`."""
    async with running(tmp_path, on=nodes(1_000)) as plane:
        await plane.add()
        await plane.until(plane.is_ready, "a running pod")


async def test_more_changes_at_once_than_watches_remember_end_no_run(tmp_path, monkeypatch):
    """As with thousands of replicas that fit nowhere."""
    monkeypatch.setattr(control_plane, "REMEMBERED_CHANGES", 5)
    async with running(tmp_path, on=nodes(1, cpu_milli=1000)) as plane:
        await plane.deploy(40)
        await plane.until(lambda: sum(map(plane.is_ready, plane.pods())) == 1, "the one that fits")
        await plane.scale(0)
        await plane.until(lambda: not plane.pods(), "an empty machine")


async def test_what_cannot_be_collected_stands_in_no_others_way(tmp_path, monkeypatch):
    """It is tried again; the run goes on (A11)."""
    real = garbage_collection._collect_one

    def collect_one(server, kind, obj, **known):
        if obj["metadata"]["name"] == "bad":
            fail()
        real(server, kind, obj, **known)

    monkeypatch.setattr(garbage_collection, "_collect_one", collect_one)
    async with running(tmp_path) as plane:
        owner = [{"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "gone"}]
        for name in ("bad", "good"):
            metadata = {"name": name, "namespace": "default", "ownerReferences": owner}
            await plane.api.create(SECRETS, {"metadata": metadata})
        await plane.add()
        await plane.until(plane.is_ready)
        await plane.delete()
        await plane.until(lambda: plane.phase() is None, "the end of the pod")
        names = lambda: [secret["metadata"]["name"] for secret in plane.server.all(SECRETS)]  # noqa: E731
        await plane.until(lambda: names() == ["bad"], "the end of the other Secret")
        monkeypatch.undo()
        await plane.until(lambda: not names(), "another try")


async def test_only_the_newest_events_are_kept(tmp_path, monkeypatch):
    """A run of days does not fill its memory with them."""
    monkeypatch.setattr(control_plane, "REMEMBERED_EVENTS", 3)
    async with running(tmp_path) as plane:
        for number in range(5):
            body = {"metadata": {"name": f"e{number}", "namespace": "default"}, "reason": "Started", "note": ""}
            await plane.api.create(EVENTS, body)
        names = lambda: [event["metadata"]["name"] for event in plane.server.all(EVENTS)]  # noqa: E731
        await plane.until(lambda: names() == ["e2", "e3", "e4"], "the oldest going")


def _of(plane, name):
    """What a watch of the pod was shown."""
    changes = plane.server.history.kept_changes()
    return [one for one in changes if one.kind == PODS and one.after and one.after["metadata"]["name"] == name]


def fail(*_):
    """Stands for a function in which EDL has a fault."""
    raise ArithmeticError("a fault of EDL's")


def _log_of(pid):
    """Where the process writes."""
    return str(Path(f"/proc/{pid}/fd/1").readlink())


def _read_private(path):
    """The content of a file that only its owner may read."""
    assert path.stat().st_mode & 0o077 == 0
    return path.read_text()
