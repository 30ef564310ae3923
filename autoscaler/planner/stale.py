"""When a view is no ground to act on (A7)."""

from __future__ import annotations

from autoscaler.domain import Bottleneck, Decision, Plan, Reason
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft


def why_stale(snapshot: Draft) -> str:
    """Return why nothing may be written, or an empty text.  An age that is NaN is too old."""
    view, policy, now_s = snapshot.view, snapshot.policy, snapshot.now_s
    if not view.is_synced:
        return "the first listing of the cluster is not complete"
    if not now_s - view.observed_at_s <= policy.stale_limit_s:
        return f"the view is {now_s - view.observed_at_s:.1f} s old; at most {policy.stale_limit_s:g} s"
    lost = len(snapshot.rooms) - len(snapshot.rooms.ready)
    if lost * 100 > policy.lost_nodes_limit_percent * len(view.nodes):
        return f"{lost} of {len(view.nodes)} nodes are not ready at once"
    return ""


def stand_still(snapshot: Draft, why: str) -> Plan:
    """Return a plan that writes nothing and keeps every size and the whole memory."""
    return Plan(
        revision=snapshot.view.revision,
        planned_at_s=snapshot.now_s,
        decisions=tuple(unchanged(job, why) for job in snapshot.jobs.values()),
        history=snapshot.view.history,
    )


def unchanged(job: JobDraft, why: str) -> Decision:
    """Return the decision to leave a job as it is."""
    spec = job.job.trainer
    return Decision(
        job=job.job.name,
        now=job.now,
        target=spec.largest_allowed(job.now) if job.now else 0,
        min=spec.min_replicas,
        max=spec.max_replicas,
        servers=job.servers_now,
        servers_target=job.servers_now,
        reason=Reason.STALE_VIEW,
        bottleneck=Bottleneck.STALE_VIEW,
        message=why,
        is_degraded=job.is_degraded,
    )
