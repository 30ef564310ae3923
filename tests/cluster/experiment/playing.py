"""One pass in real time on a control plane of its own.

The web is deployed `warm_up_s` before the scenario's zero, as on the simulated cluster, and every step comes at its
planned instant; a timeline in this process tells what became of it.  Controllers and scheduler write at the rates that
Kubernetes has by default: those are part of what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from autoscaler.clusters.kubernetes.api.http_client import HttpApi, connect
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS
from autoscaler.domain import Role, Tier
from experiments.arms.pass_setup import PassSetting, PassSetup, make_physics
from experiments.real.recording import MachineUse, RealPod
from tests.cluster.accounts import open_client
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.experiment.arm import Arm
from tests.cluster.experiment.bodies import node_shape, system_pod, web_deployment
from tests.cluster.experiment.insisting import insist
from tests.cluster.experiment.load import LoadMeter
from tests.cluster.experiment.of_2017 import Of2017
from tests.cluster.experiment.ours import begin_ours
from tests.cluster.kwok_nodes import create_nodes
from tests.cluster.pod_timeline import PodTimeline, PodTimes
from tests.cluster.toolbox import Tools
from tests.harness.waiting import wait_for

NAMESPACE: Final = "experiment"
DEFAULT_RATES: Final = {
    "kube-controller-manager": ("--kube-api-qps=20", "--kube-api-burst=30"),
    "kube-scheduler": ("--kube-api-qps=50", "--kube-api-burst=100"),
}
TELL_EVERY_S: Final = 10.0
SYSTEM_BUDGET_S: Final = 60.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Result of a pass."""

    begun: str
    pods: tuple[RealPod, ...]
    machine: MachineUse
    evictions: dict[str, int]
    remarks: tuple[str, ...]


def play(setting: PassSetting, folder: Path, tools: Tools, tell: Tell) -> Played:
    """Play the pass; takes its warm-up and its scenario's time, and some 20 s to set up."""
    with (
        start_control_plane(folder / "control-plane", tools, more_flags=DEFAULT_RATES) as plane,
        open_client(plane.kubeconfig) as admin,
    ):
        return asyncio.run(Pass(setting, plane, admin, folder, tell).play())


class Pass:
    """One pass.  Times inside are of the event loop's clock, which is the timeline's."""

    def __init__(
        self, setting: PassSetting, plane: ControlPlane, admin: client.ApiClient, folder: Path, tell: Tell
    ) -> None:
        self._setting = setting
        self._stage = PassSetup(setting)
        self._physics = make_physics(setting)
        self._plane = plane
        self._admin = admin
        self._folder = folder
        self._tell = tell
        self._late_s = 0.0
        self._zero_s = 0.0

    async def play(self) -> Played:
        """Set up the cluster, run the scenario and return its result."""
        self._set_stage()
        api = await connect(self._plane.kubeconfig)
        capacity_milli = {str(node.name): node.allocatable.cpu_milli for node in self._stage.nodes}
        timeline = PodTimeline(api=api, namespace=NAMESPACE, capacity_milli=capacity_milli)
        try:
            with ExitStack() as stack:
                arm = stack.enter_context(self._begin_arm(api, timeline))
                return await self._act(api, arm, timeline)
        finally:
            await api.close()

    def _set_stage(self) -> None:
        """Nodes, and the system's pods on them."""
        core: Any = client.CoreV1Api(self._admin)
        core.create_namespace({"metadata": {"name": NAMESPACE}})
        create_nodes(self._admin, {str(node.name): node_shape(node) for node in self._stage.nodes})
        wait_for("the namespace's ServiceAccount", lambda: core.list_namespaced_service_account(NAMESPACE).items)
        if self._setting.mix is None:
            return
        for node in self._stage.nodes:
            core.create_namespaced_pod(NAMESPACE, system_pod(str(node.name)))

        def are_up() -> bool:
            found = core.list_namespaced_pod(NAMESPACE, field_selector="status.phase=Running").items
            return len(found) == len(self._stage.nodes)

        wait_for("the system's pods", are_up, budget_s=SYSTEM_BUDGET_S)

    @contextmanager
    def _begin_arm(self, api: HttpApi, timeline: PodTimeline) -> Iterator[Arm]:
        if self._setting.arm == "edl2017":
            yield Of2017(api, NAMESPACE, self._stage, self._physics, timeline)
            return
        with begin_ours(self._plane, self._admin, api, NAMESPACE, self._setting, self._folder) as ours:
            yield ours

    async def _act(self, api: HttpApi, arm: Arm, timeline: PodTimeline) -> Played:
        programs = {name: program.pid for name, program in {**self._plane.programs, **arm.programs}.items()}
        meter = LoadMeter(programs=programs)
        watching = asyncio.create_task(timeline.run())
        beside = [watching, asyncio.create_task(meter.run()), asyncio.create_task(self._tell_on(timeline, meter))]
        self._zero_s = time.monotonic() + self._setting.scenario.warm_up_s
        begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            await self._open_web(api)
            await self._sleep_until(0.0, beside)
            beside.append(asyncio.create_task(arm.run()))
            for at_s, act in self._list_steps(api, arm):
                await self._sleep_until(at_s, beside)
                await act()
                self._late_s = max(self._late_s, self._now_s() - at_s)
            await self._sleep_until(self._setting.scenario.until_s, beside)
            pods = tuple(real_pod(pod, self._zero_s) for pod in timeline.pods.values())
            evictions = dict(arm.evictions())
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        remarks = tuple(f"over its capacity: {one}" for one in timeline.excess[:10])
        return Played(begun=begun, pods=pods, machine=meter.read(self._late_s), evictions=evictions, remarks=remarks)

    async def _open_web(self, api: HttpApi) -> None:
        for spec in self._setting.scenario.web:
            body = web_deployment(spec, self._physics)
            body["metadata"]["namespace"] = NAMESPACE
            await insist(partial(api.create, DEPLOYMENTS, body))

    def _list_steps(self, api: HttpApi, arm: Arm) -> list[tuple[float, Callable[[], Awaitable[object]]]]:
        """Events of the scenario in the order of time."""
        steps: list[tuple[float, Callable[[], Awaitable[object]]]] = []
        steps += [(one.at_s, partial(arm.submit, one)) for one in self._stage.submissions]
        for one in self._stage.changes:
            body = {"spec": {"replicas": one.wanted}}
            steps.append(
                (one.at_s, partial(insist, partial(api.patch, DEPLOYMENTS, one.web, body, namespace=NAMESPACE)))
            )
        return sorted(steps, key=lambda step: step[0])

    async def _sleep_until(self, at_s: float, beside: list[asyncio.Task[None]]) -> None:
        """Until that instant of the scenario.  Raises what a task beside has ended with."""
        until_s = self._zero_s + at_s
        if (left_s := until_s - time.monotonic()) > 0:
            done, _ = await asyncio.wait(beside, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _tell_on(self, timeline: PodTimeline, meter: LoadMeter) -> None:
        """A line every ten seconds."""
        cpu_milli = sum(node.allocatable.cpu_milli for node in self._stage.nodes)
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            held = [pod for pod in timeline.pods.values() if pod.running_at_s is not None and pod.ended_at_s is None]
            use = 100 * sum(pod.cpu_milli for pod in held) / cpu_milli
            web = sum(pod.stands for pod in held if pod.app)
            trainers = sum(timeline.trainers().values())
            pending = sum(pod.bound_at_s is None and pod.ended_at_s is None for pod in timeline.pods.values())
            busy = meter.busy[-1] if meter.busy else 0.0
            self._tell(
                f"{self._now_s():6.0f} s: {use:5.1f} % used, {web} web pods, {trainers} trainers, "
                f"{pending} pods without a node; the machine is {busy:.0f} % busy"
            )

    def _now_s(self) -> float:
        """In the scenario's time."""
        return time.monotonic() - self._zero_s


def real_pod(pod: PodTimes, zero_s: float) -> RealPod:
    """Observations of the timeline, in the scenario's time."""

    def told(at_s: float | None) -> float | None:
        return None if at_s is None else at_s - zero_s

    role = Role(pod.role) if pod.role else Role.EXTERNAL
    own = Tier.SURPLUS if pod.is_surplus else Tier.CORE
    return RealPod(
        name=str(pod.name).rsplit("/", 1)[-1],
        owner=pod.job or pod.app,
        role=role,
        tier=Tier.EXTERNAL if role is Role.EXTERNAL else own,
        node=pod.node,
        requests=pod.requests,
        created_at_s=pod.created_at_s - zero_s,
        bound_at_s=told(pod.bound_at_s),
        running_at_s=told(pod.running_at_s),
        terminating_at_s=told(pod.told_at_s),
        gone_at_s=told(pod.ended_at_s),
        was_drained=pod.has_succeeded,
        is_preempted=pod.is_preempted,
    )
