"""The installed `edl` command, and `edl run` of a small job in another process."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

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


def pid_of(pod):
    """The process of a run's pod; 0 while it has none."""
    return int(pod["metadata"].get("annotations", {}).get("edl.dev/pid", 0))


def environment_of(pid):
    """The variables that the process was started with."""
    return dict(part.split("=", 1) for part in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in part)


def progress_in(run, job):
    """The progress of a run's job, as its master answers another terminal; None if no master answers."""
    pods = json.loads(edl("get", "pods", "-o", "json", run=run))["items"]
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
        wait_until(RunFolder(root=self.folder).control_socket().exists, "the control socket")

    def get(self, kind):
        return json.loads(edl("get", kind, "-o", "json", run=self.folder))

    def pids(self):
        return [pid for pod in self.get("pods")["items"] if (pid := pid_of(pod))]

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
