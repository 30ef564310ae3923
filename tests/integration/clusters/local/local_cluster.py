"""A local cluster for tests: real processes, small programs, no master and no planner unless a test brings them."""

import os
import shutil
import sys
import time
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from autoscaler.clusters.local.cluster.local_cluster import LocalCluster
from autoscaler.clusters.local.cluster.pod_launch import PodLauncher
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.clusters.local.run_files.run_journal import RecordedErrors, RunJournal
from autoscaler.domain import Node, Resources
from autoscaler.fault_isolation import JobErrors
from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.manifests.api_types import (
    CheckpointSpec,
    JobSpec,
    MasterRole,
    PodTemplate,
    ReplicaBounds,
    RunPolicy,
    ServerRole,
    TrainerRole,
    WebDeployment,
)

PROGRAMS = Path(__file__).resolve().parents[3] / "programs"
DEADLINE_S = 120.0
SLEEPER = (sys.executable, "-c", "import time; time.sleep(1000)")


def requests(cpu_milli=1000, gpu_count=0):
    return Resources(cpu_milli=cpu_milli, memory_bytes=64 << 20, gpu_count=gpu_count, extended=(("pods", 1),))


def template(*command, cpu_milli=1000, port=None, grace_s=5.0, gpu_count=0, env=()):
    return PodTemplate(
        container="main",
        command=command or SLEEPER,
        env=env,
        working_dir=None,
        requests=requests(cpu_milli, gpu_count),
        container_port=port,
        grace_s=grace_s,
        priority_class=None,
    )


def job(name="digits", *, trainer=None, server=None, low=1, high=4, most_servers=1, backoff_limit=3, **policy):
    return JobSpec(
        name=name,
        namespace="default",
        priority_class="edl-core",
        weight=100,
        run_policy=RunPolicy(
            **{
                "backoff_limit": backoff_limit,
                "active_deadline_s": None,
                "ttl_after_finished_s": None,
                "suspend": False,
                **policy,
            }
        ),
        trainer=TrainerRole(
            replicas=ReplicaBounds(minimum=low, maximum=high),
            step=1,
            powers_of_two=False,
            per_node=1,
            resize_cost_s=0.0,
            template=trainer or template(),
        ),
        server=None
        if server is None
        else ServerRole(
            replicas=ReplicaBounds(minimum=1, maximum=most_servers), trainers_per_server=4, template=server
        ),
        master=MasterRole(replicas=1, template=template(cpu_milli=100)),
        checkpoint=CheckpointSpec(uri="", every_s=5.0),
    )


def web(name="web", *, replicas=1, port=8080, cpu_milli=1000, command=(sys.executable, str(PROGRAMS / "web.py"))):
    return WebDeployment(
        name=name,
        namespace="default",
        replicas=replicas,
        template=template(*command, cpu_milli=cpu_milli, port=port, grace_s=2.0),
    )


def nodes(count=2, cpu_milli=4000, gpus=()):
    capacity = Resources(cpu_milli=cpu_milli, memory_bytes=8 << 30, gpu_count=len(gpus), extended=(("pods", 20),))
    return {Node(name=f"node-{number}", allocatable=capacity): tuple(gpus) for number in range(1, count + 1)}


async def no_answer(_record):
    """As a master that is not there."""
    return WhyNoAnswer.SILENT


async def no_ear(_record, _count):
    """As a master that cannot be told anything."""
    return WhyNoAnswer.SILENT


async def wait_until(cluster, condition, what="it"):
    """Until the condition holds; every change of the cluster is a reason to look again."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE_S:.0f} s"
        await cluster.table.wait_for_change(0.05)


@asynccontextmanager
async def running(tmp_path, *, on=None, look_at=no_answer, set_servers=no_ear):
    """A local cluster that runs pods; a crash of its own fails the test."""
    folder = make_run_folder(tmp_path, "test", described={"name": "test"})
    crashes = []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder.sockets, ignore_errors=True)  # which may be in /tmp
        recorder = stack.enter_context(RunJournal(folder, clock=time.monotonic))
        launching = PodLauncher(folder=folder, working_dir=tmp_path, environment=dict(os.environ))
        cluster = LocalCluster(
            on or nodes(),
            launching,
            recorder,
            clock=time.monotonic,
            look_at=look_at,
            set_servers=set_servers,
            on_crash=crashes.append,
            errors=JobErrors(time.monotonic, RecordedErrors(recorder)),
        )
        async with cluster:
            yield cluster
    assert crashes == []
