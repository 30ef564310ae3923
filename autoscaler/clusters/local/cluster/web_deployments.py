"""Deployments of a run: web pods are created, bound and deleted, as other controllers do on Kubernetes.

`web_replicas` decides how many there are and `machine.scheduling` where they run; both are pure.  A pod that fits
nowhere stays pending with its verdict, which is the planner's demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from autoscaler.clusters.local.cluster.pod_factory import PodFactory
from autoscaler.clusters.local.cluster.web_replicas import plan_web_replicas, pod_name
from autoscaler.clusters.local.machine.scheduling import place_pending
from autoscaler.clusters.local.pods.local_pod import to_view
from autoscaler.clusters.local.pods.pod_runtime import PodRuntime
from autoscaler.clusters.local.pods.pod_table import PodTable, free_room
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import NodeName, PodName, PodPhase, Role, Tier
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.manifests.api_types import WebDeployment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRecord:
    """A Deployment; `wanted` is what `edl scale` set last.  `is_deleted`: goes when its last pod has gone."""

    deployment: WebDeployment
    priority: int
    wanted: int
    is_deleted: bool = False


class WebDeployments:
    """All Deployments, by name."""

    def __init__(
        self,
        table: PodTable,
        runtime: PodRuntime,
        recorder: RunJournal,
        maker: PodFactory,
        *,
        clock: Callable[[], float],
        errors: JobErrors,
    ) -> None:
        self._errors = errors
        self._table = table
        self._runtime = runtime
        self._recorder = recorder
        self._maker = maker
        self._clock = clock
        self._is_reconcile_due = False
        self._is_reconciling = False
        self.records: dict[str, DeploymentRecord] = {}

    def deploy(self, deployment: WebDeployment, *, priority: int) -> None:
        """Run the replicas of a Deployment.  Raises ValueError when there is one of that name."""
        if deployment.name in self.records:
            raise ValueError(f"there is a deployment {deployment.name} already")
        record = DeploymentRecord(deployment=deployment, priority=priority, wanted=deployment.replicas)
        self.records[deployment.name] = record
        message = f"{deployment.replicas} replicas wanted"
        self._recorder.record_event("Submitted", f"deployment/{deployment.name}", "Submitted", message)
        self.reconcile()

    def scale(self, name: str, replicas: int) -> None:
        """From now on so many replicas of a Deployment.  Raises KeyError."""
        record = self.records[name]
        self.records[name] = replace(record, wanted=replicas)
        self._recorder.record_event(
            "Resized", f"deployment/{name}", "Scaled", f"from {record.wanted} to {replicas} replicas"
        )
        self.reconcile()

    def delete(self, name: str) -> None:
        """Stop its pods and forget it.  Raises KeyError."""
        self.records[name] = replace(self.records[name], wanted=0, is_deleted=True)
        self.reconcile()

    def reconcile(self) -> None:
        """Create and stop web pods until there are as many as wanted, and bind those that fit.

        A pod without a process is gone the moment it is told to leave, which asks for another pass; passes never nest.
        """
        self._is_reconcile_due = True
        if self._is_reconciling:
            return
        self._is_reconciling = True
        try:
            while self._is_reconcile_due:
                self._is_reconcile_due = False
                self._reconcile_once()
        finally:
            self._is_reconciling = False

    def _reconcile_once(self) -> None:
        for name in tuple(self.records):
            self._errors.attempt(
                object_key("deployment", "", name), GuardedTask.WRITE, partial(self._reconcile_one, name)
            )
        self._bind_pending()

    def _reconcile_one(self, name: str) -> None:
        record, pods = self.records[name], self._table.web_pods(name)
        difference = plan_web_replicas(name, record.wanted, pods, self._table.pods.keys())
        for ordinal in difference.create:
            self._add_web_pod(record, ordinal)
        for pod in difference.stop:
            self._runtime.leave(pod, grace_s=record.deployment.template.grace_s, why="fewer replicas are wanted")
        if record.is_deleted and not self._table.web_pods(name):
            del self.records[name]
            self._recorder.record_event("Deleted", f"deployment/{name}", "Gone")
            self._table.touch()

    def _add_web_pod(self, record: DeploymentRecord, ordinal: int) -> None:
        name = pod_name(record.deployment.name, ordinal)
        self._maker.make(
            name,
            record.deployment.template,
            role=Role.EXTERNAL,
            tier=Tier.EXTERNAL,
            owner=record.deployment.name,
            ordinal=ordinal,
            priority=record.priority,
        )
        self._recorder.record_event("Created", f"pod/{name}", "Pending", "wants a node")

    def _bind_pending(self) -> None:
        pending = [pod for pod in self._table.pods.values() if pod.phase is PodPhase.PENDING]
        if not pending:
            return
        nodes = tuple(self._table.nodes.values())
        free = free_room(self._table.nodes, self._table.pods.values())
        for name, node in place_pending([to_view(pod) for pod in pending], nodes, free).items():
            if node is not None:
                self._bind(name, node)
            elif self._table.pods[name].unschedulable_since_s is None:
                self._table.update(name, unschedulable_since_s=self._clock())
                self._recorder.record_event("Scheduled", f"pod/{name}", "Unschedulable", "no node has room for it")

    def _bind(self, name: PodName, node: NodeName) -> None:
        pod = self._table.pods[name]
        gpus = self._maker.choose_gpus(node, pod.template)
        self._table.update(name, node=node, gpus=gpus, phase=PodPhase.STARTING, unschedulable_since_s=None)
        self._recorder.record_event("Scheduled", f"pod/{name}", "Scheduled", f"to {node}")
        self._runtime.launch(name)
