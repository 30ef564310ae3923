"""Why a job has its size: the planner's decision, its bottleneck, and the smallest changes that would lift it."""

from __future__ import annotations

from typing import Any

from autoscaler.domain import Decision, Job
from autoscaler.jobs.server_ratio import describe_data_wait, find_hint
from autoscaler.planner.counterfactual import Explanation
from autoscaler.snapshots.codec import encode


def server_hint(explanation: Explanation, job: Job) -> str:
    """Return a hint at a better number of servers; empty for none."""
    hint = find_hint(servers=explanation.decision.servers, waiting_share=job.waiting_share)
    return "" if hint is None or job.servers is None else hint.describe(job.servers.max_replicas)


def data_hint(job: Job) -> str:
    """Return a hint that the trainers wait for data; empty if they do not."""
    return describe_data_wait(servers=0 if job.servers is None else 1, waiting_share=job.waiting_share)


def why_content(explanation: Explanation, job: Job) -> dict[str, Any]:
    """The answer for scripts."""
    return {
        "servers_hint": server_hint(explanation, job),
        "data_hint": data_hint(job),
        "decision": encode(explanation.decision, Decision),
        "settled": encode(explanation.settled, Decision),
        "answers": [
            {
                "size": answer.size,
                "changes": [{**encode(c, type(c)), "amount": c.amount, "words": c.describe()} for c in answer.changes],
            }
            for answer in explanation.answers
        ],
        "plans": explanation.plans,
        "is_cut": explanation.is_cut,
    }
