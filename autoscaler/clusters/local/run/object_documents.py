"""Objects of a run in Kubernetes' form, for `edl get -o json|yaml` and everything that reads it.

Pure: from the lines of a snapshot to plain mappings that JSON can carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autoscaler.clusters.local.run.run_snapshot import DeploymentLine, JobLine, NodeLine, PodLine
from autoscaler.domain import NOTHING, PodPhase, Resources
from autoscaler.jobs.server_ratio import find_hint
from autoscaler.jobs.training_health import URGENT, checkpoint_verdict, training_verdict
from autoscaler.manifests.api_types import AUTO
from autoscaler.quantities import format_cpu, format_memory

Object = Mapping[str, Any]


def job_object(job: JobLine) -> Object:
    progress = job.progress
    decision = job.decision
    hint = None if progress is None else find_hint(servers=job.servers, waiting_share=progress.waiting_share)
    return {
        "apiVersion": "edl.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": job.name, "namespace": job.namespace},
        "spec": {
            "priorityClassName": job.priority_class,
            "weight": job.weight,
            "trainer": {"minReplicas": job.min, "maxReplicas": job.max, "replicas": job.pinned},
            "parameterServer": None
            if not job.servers_max
            else {
                "minReplicas": job.servers_min,
                "maxReplicas": job.servers_max,
                "replicas": job.servers_pinned,
                "trainersPerServer": AUTO if job.is_ratio_measured else job.trainers_per_server,
                "afterLoss": job.after_loss.value,
                "copies": job.copies,
            },
            "runPolicy": {"backoffLimit": job.backoff_limit},
            "checkpoint": {"uri": job.checkpoint_uri},
        },
        "status": {
            "phase": job.condition,
            "conditions": [{"type": job.condition, "status": "True", "message": job.message}, *_verdicts(job)],
            "reason": _reason(job),
            "trainers": job.now,
            "target": job.target,
            "servers": job.servers,
            "serversTarget": job.servers_target,
            "serversLeaving": job.servers_leaving,
            "trainersPerServer": job.trainers_per_server,
            "serversHint": hint.describe(job.servers_max) if hint is not None else "",
            "masterReady": job.has_master,
            "failuresInARow": job.failures,
            "ageSeconds": job.age_s,
            "endedSeconds": job.ended_s,
            "decision": None
            if decision is None
            else {
                "reason": decision.reason,
                "bottleneck": decision.bottleneck,
                "cause": decision.cause,
                "message": decision.message,
                "share": decision.share,
                "degraded": decision.is_degraded,
                "notice": decision.notice,
            },
            "progress": None
            if progress is None
            else asdict(progress)
            | {
                "connected": sorted(progress.connected),
                "epoch": progress.epoch,
                "reworked": progress.reworked_in_all,
            },
        },
    }


def _verdicts(job: JobLine) -> list[Object]:
    """Conditions Progressing and CheckpointsCurrent, as on Kubernetes."""
    if job.heard is None:
        return []
    told = (("Progressing", training_verdict(job.heard)), ("CheckpointsCurrent", checkpoint_verdict(job.heard)))
    truths = {True: "True", False: "False", None: "Unknown"}
    return [
        {"type": kind, "status": truths[one.holds], "reason": one.reason.value, "message": one.message}
        for kind, one in told
    ]


def _reason(job: JobLine) -> str:
    """The most urgent reason: what keeps the job from training or from checkpoints, else from its next size."""
    verdicts = () if job.heard is None else (training_verdict(job.heard), checkpoint_verdict(job.heard))
    urgent = next((one.reason.value for one in verdicts if one.reason in URGENT), "")
    return urgent or (job.decision.bottleneck.value if job.decision is not None else "")


def node_object(node: NodeLine) -> Object:
    used = sum((pod.requests for pod in node.pods), NOTHING)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name},
        "spec": {"unschedulable": not node.is_open},
        "status": {
            "allocatable": amounts(node.capacity),
            "requested": amounts(used),
            "pods": [pod.name for pod in node.pods],
        },
    }


def pod_object(pod: PodLine) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "labels": {"edl.dev/role": pod.role, "edl.dev/tier": pod.tier, "edl.dev/owner": pod.owner},
        },
        "spec": {"nodeName": pod.node, "requests": amounts(pod.requests), "gpus": list(pod.gpus)},
        "status": {
            "phase": pod_phase(pod),
            "reason": pod.reason or ("Unschedulable" if pod.is_unschedulable else ""),
            "restarts": pod.restarts,
            "ageSeconds": pod.age_s,
            "pendingSeconds": pod.pending_s,
            "pid": pod.pid,
            "port": pod.port,
            "ordinal": pod.ordinal,
            "log": pod.log,
        },
    }


def deployment_object(deployment: DeploymentLine) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment.name, "namespace": deployment.namespace},
        "spec": {"replicas": deployment.wanted},
        "status": {
            "readyReplicas": deployment.ready,
            "pendingReplicas": deployment.pending,
            "startingReplicas": deployment.starting,
            "ageSeconds": deployment.age_s,
        },
    }


def pod_phase(pod: PodLine) -> str:
    """Phase of the pod as kubectl shows it, CrashLoopBackOff for one that waits after a crash."""
    if pod.phase is PodPhase.TERMINATING:
        return "Terminating"
    if pod.reason.startswith("CrashLoopBackOff"):
        return "CrashLoopBackOff"
    return {PodPhase.PENDING: "Pending", PodPhase.STARTING: "Starting", PodPhase.READY: "Running"}.get(
        pod.phase, pod.phase.title()
    )


def amounts(resources: Resources) -> Mapping[str, str]:
    """Quantities as Kubernetes writes them."""
    shown = {"cpu": format_cpu(resources.cpu_milli), "memory": format_memory(resources.memory_bytes)}
    if resources.gpu_count:
        shown["nvidia.com/gpu"] = str(resources.gpu_count)
    return shown | {name: str(amount) for name, amount in resources.extended}
