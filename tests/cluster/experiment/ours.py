"""Our arms on a real control plane: the chart, and its operator as a process of its own with the chart's rights."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from kubernetes import client

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.simulated import Physics
from autoscaler.domain import Policy
from autoscaler.operator.process.policy_file import public_name
from experiments.arms.ours import make_policy
from experiments.arms.pass_setup import JobSubmission, PassSetting, make_physics
from tests.cluster.control_plane import ControlPlane
from tests.cluster.experiment.bodies import training_job
from tests.cluster.experiment.insisting import insist
from tests.cluster.playground import install_edl
from tests.harness.free_ports import free_ports
from tests.harness.processes import Program

SCRAPE_BUDGET_S: Final = 60.0
SET: Final = ("reclaim", "surplus_grace_s")
"""What `make_policy` sets of a policy in an arm that is no variant; the rest are defaults on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The operator leads."""

    api: Api
    namespace: str
    physics: Physics
    operator: Program
    port: int

    @property
    def programs(self) -> Mapping[str, Program]:
        return {"edl operator": self.operator}

    async def submit(self, submission: JobSubmission) -> None:
        body = training_job(submission.job, self.physics)
        body["metadata"]["namespace"] = self.namespace
        await insist(partial(self.api.create, TRAINING_JOBS, body))

    async def run(self) -> None:
        """Nothing: the operator works by itself."""
        await asyncio.get_running_loop().create_future()

    def evictions(self) -> Mapping[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=SCRAPE_BUDGET_S) as answer:
            return parse_evictions(answer.read().decode())


@contextmanager
def begin_ours(
    plane: ControlPlane, admin: client.ApiClient, api: Api, namespace: str, setting: PassSetting, folder: Path
) -> Iterator[Ours]:
    """Inside the context the operator runs."""
    file = folder / "policy.json"  # JSON is YAML
    file.write_text(json.dumps(written_policy(make_policy(setting))), encoding="utf-8")
    port = free_ports(1)[0].health
    operator = install_edl(plane, admin, folder, port=port, more=("--policy", str(file)))
    try:
        yield Ours(api=api, namespace=namespace, physics=make_physics(setting), operator=operator, port=port)
    finally:
        operator.stop(budget_s=5.0)


def written_policy(policy: Policy) -> dict[str, object]:
    """The policy file of the arm."""
    return {public_name(field): getattr(policy, field) for field in SET}


def parse_evictions(metrics: str) -> dict[str, int]:
    """Trainers by who made them leave, from the operator's metrics."""
    found: dict[str, int] = {}
    for labels, count in re.findall(r"^edl_pod_terminations_total\{([^}]*)\} (\S+)$", metrics, re.MULTILINE):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if told.get("role") == "trainer":
            found[told["cause"]] = found.get(told["cause"], 0) + int(float(count))
    return found
