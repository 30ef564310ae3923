"""The installed `edl` command, and `edl run` of a small job in another process.

Whoever waits for something of a run reads its socket (`read_run`): the command takes a quarter of a second of CPU time
to start, which a test that asks again and again has no use for.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.local.control_plane.socket_client import SocketApi
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.jobs.progress import progress_of
from tests.harness.master_status import try_status
from tests.harness.waiting import wait_for

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
EDL = str(Path(sys.executable).with_name("edl"))
DEADLINE_S = 120.0
FILES = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: idle}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 3
    template:
      spec:
        terminationGracePeriodSeconds: 2
        containers: [{name: t, command: [python, IDLE], resources: {requests: {cpu: 1, memory: 64Mi}}}]
  master:
    template:
      spec:
        terminationGracePeriodSeconds: 1
        containers: [{name: m, resources: {requests: {cpu: 100m, memory: 64Mi}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  template:
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        command: [python, WEB]
        ports: [{containerPort: 80}]
        resources: {requests: {cpu: 1, memory: 64Mi}}
"""


def edl(*words, run=None, code=0, deadline_s=DEADLINE_S):
    """The command's output; it must end with this exit code."""
    environment = {**os.environ, **({"EDL_RUN": str(run)} if run else {})}
    done = subprocess.run(
        [EDL, *words], env=environment, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def read_run(run, what):
    """As `edl get WHAT -o json` in the namespace default: `pods` and the like are a list, `tj/NAME` is an object."""
    word, _, name = what.partition("/")
    kind = {"tj": TRAINING_JOBS, "pod": PODS, "pods": PODS, "deployment": DEPLOYMENTS}[word]
    api = SocketApi(RunFolder(root=run).control_socket())
    if name:
        return asyncio.run(api.get(kind, name, namespace="default"))
    return {"items": list(asyncio.run(api.list(kind)).items)}


def ready_trainers(run, job):
    """So many as the job's status says; 0 while there is no such job, or it has none."""
    try:
        return read_run(run, f"tj/{job}")["status"]["trainers"]["ready"]
    except (NotFoundError, KeyError):
        return 0


def is_in_events(run, words):
    """True if the run has kept an event of these words, which `edl events` then shows."""
    return words in RunFolder(root=run).events.read_text(encoding="utf-8")


def pid_of(pod):
    """The process of a run's pod; 0 while it has none, and once it has ended (the annotation is empty then)."""
    return int(pod["metadata"].get("annotations", {}).get("edl.dev/pid") or 0)


def environment_of(pid):
    """The variables that the process was started with."""
    return dict(part.split("=", 1) for part in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in part)


def progress_in(run, job):
    """The progress of a run's job, as its master answers another terminal; None if no master answers."""
    pods = read_run(run, "pods")["items"]
    masters = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{job}-master-")]
    for pid in filter(None, map(pid_of, masters)):
        try:
            told = environment_of(pid)
        except OSError:  # it has ended meanwhile
            continue
        token = Path(told["EDL_TOKEN_FILE"]).read_text()
        status = asyncio.run(try_status(told["EDL_MASTER"], told["EDL_JOB"], token=token))
        if status is not None:
            return progress_of(status)
    return None


def wait_until(condition, what):
    wait_for(what, condition, budget_s=DEADLINE_S)


class EdlRun:
    """`edl run` in its own process."""

    def __init__(self, folder, *options, files=FILES, umask=-1, environment=None):
        text = files.replace("IDLE", str(PROGRAMS / "idle.py")).replace("WEB", str(PROGRAMS / "web.py"))
        (folder / "job.yaml").write_text(text)
        argv = [EDL, "run", "job.yaml", "--nodes", "2", "--cpu", "2", "--no-view", "--no-etcd", *options]
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=umask,
            env=environment,
        )
        line = self.process.stdout.readline()
        assert line.startswith("run folder: "), line + self.process.stdout.read()
        self.folder = Path(line.removeprefix("run folder: ").strip())
        wait_until(RunFolder(root=self.folder).is_live, "the control socket")

    def get(self, kind):
        return read_run(self.folder, kind)

    def pids(self):
        return [pid for pod in self.get("pods")["items"] if (pid := pid_of(pod))]

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
