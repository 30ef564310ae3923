"""Summary of a job in one terminal line: the plan's change, else its bottleneck.

Sizes and reasons stand in fields of the `Decision`; this is the rest of the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from autoscaler.domain import Cause, CreatePod, JobState, NodeName, Role
from autoscaler.planner.formatting import counted, listed
from autoscaler.planner.working_copy.planned_job import Leaving, PlannedJob

LINE_LIMIT: Final = 110  # beside time, job and sizes on a wide terminal; only very long names reach it
LEFT: Final[Mapping[Cause, str]] = {
    Cause.POD: "gave {pods} to {beneficiary} on {nodes}",
    Cause.ANNOUNCED_GROWTH: "gave {pods} to {beneficiary}, announced, on {nodes}",
    Cause.HEADROOM: "gave {pods} to headroom on {nodes}",
    Cause.GANG: "gave {pods} to job {beneficiary} on {nodes}",
    Cause.CORE_SWAP: "gave {pods} to its own core on {nodes}",
    Cause.TRANSFER: "gave {pods} to job {beneficiary}, whose share is smaller",
    Cause.LOST_NODE: "moves {pods} off {nodes}, which is being drained",
    Cause.PREEMPTION: "stops: job {beneficiary}, of higher priority, takes its capacity",
    Cause.RATIO: "removed {pods}: its trainers need fewer servers",
    Cause.IDLE: "gave {pods} on {nodes}, which did no work, to job {beneficiary}",
    Cause.HUNG: "replaces {pods} on {nodes}: the script hangs and its GPU does nothing",
    Cause.EFFICIENCY: "gave back {pods}: {why}",
    Cause.STEP: "removed {pods}: too few for a whole step",
    Cause.DEFRAGMENTATION: "gave {pods} to a server on {nodes}; more trainers fit on the node that the server leaves",
}


def summarize(job: PlannedJob) -> str:
    """Return the plan's change of the job, else its bottleneck."""
    return cut(describe_change(job) or job.message or "keeps its size")


def limit_beside(job: PlannedJob) -> str:
    """Return the bottleneck in words where `summarize` tells of a change, else nothing."""
    return cut(job.message) if describe_change(job) else ""


def describe_change(job: PlannedJob) -> str:
    """Return what the plan does to the job; empty for nothing."""
    return describe_leaving(job) or describe_coming(job) or describe_moving(job)


def cut(text: str) -> str:
    """Return the text within one line."""
    return text if len(text) <= LINE_LIMIT else text[: LINE_LIMIT - 3] + "..."


def describe_leaving(job: PlannedJob) -> str:
    """Pods that are removed, and their beneficiary: trainers before others, the first cause before others."""
    trainers = [leaving for leaving in job.leaving if leaving.pod.role is Role.TRAINER]
    if not job.leaving:
        return ""
    cause = (trainers or job.leaving)[0].cause
    removed = [leaving for leaving in job.leaving if leaving.cause is cause]
    pods = counted(leaving.pod.role for leaving in removed)
    if cause is Cause.EDIT:
        reasons = [why_edited(job)] if trainers else []
        reasons += [pinned_servers(job)] if any(leaving.pod.role is Role.SERVER for leaving in removed) else []
        return f"removed {pods}: {', '.join(dict.fromkeys(reasons)) or why_edited(job)}"
    beneficiary = listed(sorted({leaving.beneficiary for leaving in removed if leaving.beneficiary}))
    if cause is Cause.PREEMPTION and not beneficiary:
        return "stops: its core was incomplete for too long"
    if cause is Cause.DEFRAGMENTATION and not trainers:
        return (
            describe_defragmentation(job, removed[0])
            if len(removed) == 1
            else f"removes {pods}: {beneficiary} run where they waste less"
        )
    return LEFT[cause].format(pods=pods, beneficiary=beneficiary, nodes=node_list(removed), why=why_given_back(job))


def describe_moving(job: PlannedJob) -> str:
    """Servers that are moving to other nodes, as text."""
    moves = [f"{move.pod} is removed once server {move.ordinal} is ready on {move.node}" for move in job.moving]
    return moves[0] + (f", and {len(moves) - 1} more" if len(moves) > 1 else "") if moves else ""


def describe_defragmentation(job: PlannedJob, leaving: Leaving) -> str:
    """The server of a move that leaves, and why, as text."""
    gone, stays = leaving.pod, next((pod for pod in job.servers if pod.name == leaving.beneficiary), None)
    if stays is not None and stays.created_at_s < gone.created_at_s:
        why = "was not ready in time" if gone.node is not None else "waits for capacity that other pods may need"
        return f"gives up moving {stays.name}: {gone.name} {why} on {node_list([leaving])}"
    return f"removes 1 server from {node_list([leaving])}: {leaving.beneficiary} replaces it and wastes less"


def why_edited(job: PlannedJob) -> str:
    """Return the field of the job's document that requires fewer pods."""
    spec = job.spec.trainer
    if job.spec.state is not JobState.ACTIVE:
        return f"the job is {job.spec.state}"
    return f"trainer.replicas is {spec.pinned_replicas}" if spec.pinned_replicas else f"at most {spec.ceiling} allowed"


def why_given_back(job: PlannedJob) -> str:
    """Text on why trainers leave for the job's efficiency."""
    if job.is_probing:
        return f"measures its throughput at {job.size} trainers, which tells how many pay"
    return f"beyond {job.size} each adds less than {job.spec.trainer.efficiency:g} of a trainer"


def pinned_servers(job: PlannedJob) -> str:
    """The pinned number of servers, as text."""
    if job.spec.state is not JobState.ACTIVE or job.spec.servers is None:
        return why_edited(job)
    return f"parameterServer.replicas is {job.spec.servers.pinned_replicas}"


def describe_coming(job: PlannedJob) -> str:
    """Return the created pods and their cause."""
    if job.is_starting:
        return f"starts with {counted(pod.role for pod in job.created if pod.cause is Cause.START)}"
    if not job.created or not job.is_running:  # a job that waits for its start grows by nothing yet
        return ""
    for pod in job.created:
        if pod.cause is Cause.DEFRAGMENTATION:
            return f"moves {pod.replaces} to {pod.node}, where it wastes less"
    back = [pod for pod in job.created if pod.cause is not Cause.FREE_CAPACITY]
    if back and all(pod.role is Role.SERVER for pod in back) and job.spec.servers and job.spec.servers.pinned_replicas:
        return f"gets {counted(pod.role for pod in back)} on {node_list(back)}: {pinned_servers(job)}"
    if back:
        return f"gets {counted(pod.role for pod in back)} back on {node_list(back)}"
    return f"grows by {counted(pod.role for pod in job.created)} on {node_list(job.created)}"


def node_list(pods: Iterable[CreatePod | Leaving]) -> str:
    """Return the nodes of these pods, present or planned."""
    nodes = {pod.node if isinstance(pod, CreatePod) else pod.pod.place for pod in pods}
    return listed(sorted(node for node in nodes if node is not None)) or NodeName("no node")
