"""Comparison of the replicas of a group that trains: asked for by an annotation, answered in the job's status.  Pure.

The operator hands the request on to the job's master with its polls, and the status names the request that the last
comparison answers (ADR 0291).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoscaler.clusters.kubernetes.objects.fields import Raw, condition_of, integer, part, text


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplicas:
    """`trainers` have compared their replicas after `step`, and all had this digest.  0 trainers: none have yet.

    `problem`: why the job has failed.  `is_answer`: the comparison answers the request.
    """

    step: int = 0
    trainers: int = 0
    digest: str = ""
    is_answer: bool = False
    problem: str = ""

    @property
    def is_settled(self) -> bool:
        """True if waiting longer gives nothing else."""
        return self.is_answer or bool(self.problem)

    @property
    def content(self) -> dict[str, Any]:
        """Comparison for scripts."""
        return {
            "step": self.step,
            "trainers": self.trainers,
            "digest": self.digest,
            "is_fresh": self.is_answer,
            "problem": self.problem,
        }

    @property
    def line(self) -> str:
        """Comparison for people, in one line."""
        if self.problem:
            return f"the job has failed: {self.problem}"
        if not self.trainers:
            return "no trainers have compared their replicas yet; one alone has nobody to compare with"
        when = "" if self.is_answer else ", the last comparison; no newer one was made in time"
        of = f"the replicas of {self.trainers:,} trainers are the same, digest {self.digest}"
        return f"after step {self.step:,} {of}{when}"


def live_replicas_of(job: Raw, request: str) -> LiveReplicas:
    """Comparison in the job's status.  `request`: the name that was written to the job."""
    told = part(job, "status", "progress", "replicas")
    failed = condition_of(job, "Failed")
    return LiveReplicas(
        step=integer(told, "step"),
        trainers=integer(told, "trainers"),
        digest=text(told, "digest"),
        is_answer=bool(request) and text(told, "request") == request,
        problem=text(failed, "message") if failed.get("status") == "True" else "",
    )
