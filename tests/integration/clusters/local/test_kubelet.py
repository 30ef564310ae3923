"""The kubelet of a run with real processes: pods come, serve, restart, leave and end as on a node."""

import asyncio
import json
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from autoscaler.clusters.kubernetes.api.kinds import PODS, SECRETS
from autoscaler.clusters.local.control_plane import kubelet
from autoscaler.clusters.local.machine.ports import PortAllocator
from autoscaler.clusters.local.machine.processes import MachineFullError, Processes
from autoscaler.errors import TemporaryError
from tests.integration.clusters.local.local_cluster import DEAF, PROGRAMS, SLEEPER, nodes, running


async def test_a_pod_is_bound_and_runs(tmp_path):
    """It gets a node, a process and its log; a pod without a port is ready at once."""
    async with running(tmp_path) as plane:
        await plane.add(command=(sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(1000)"))
        await plane.until(lambda: plane.is_ready() and "hello" in plane.log(), "a running pod")
        assert plane.phase() == "Running"
        assert plane.pods()["p"]["spec"]["nodeName"] in {"node-1", "node-2"}
        told = plane.pods()["p"]["metadata"]["annotations"]
        assert "hello" in await asyncio.to_thread(_command_of, told["edl.dev/pid"])
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


@pytest.mark.parametrize("role", ["server", "trainer"])
async def test_a_member_finds_its_secret_as_files_and_its_master_at_a_socket(tmp_path, role):
    """What a container mounts is a folder of the run, for its owner's eyes only; ports and TLS are for networks."""
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    told = {
        "EDL_JOB": "default.digits.0123abcd",
        "EDL_ROLE": role,
        "EDL_GROUP": "1",  # then its trainers listen for each other
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
        await plane.delete("digits-server-0")
        gone = lambda: not any(plane.folder.tokens.iterdir())  # noqa: E731
        await plane.until(gone, "the end of its Secret's files")
        assert plane.server.logs == {}


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


def _of(plane, name):
    """What a watch of the pod was shown."""
    changes = plane.server.history.kept_changes()
    return [one for one in changes if one.kind == PODS and one.after and one.after["metadata"]["name"] == name]


def _command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text()


def _read_private(path):
    """The content of a file that only its owner may read."""
    assert path.stat().st_mode & 0o077 == 0
    return path.read_text()
