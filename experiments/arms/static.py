"""The static arm: every job gets its fixed number of trainers at submission, and keeps it (OFF in 2017)."""

from __future__ import annotations

from functools import partial

from autoscaler.domain import Role
from experiments.arms.controlled_cluster import ArmSetup
from experiments.arms.pass_setup import JobSubmission, PassSetup


def schedule(setup: PassSetup) -> None:
    """Schedule the submissions of the static arm."""
    for submission in setup.submissions:
        setup.at(submission.at_s, partial(submit, setup, submission, submission.static))


def submit(setup: ArmSetup, submission: JobSubmission, trainers: int) -> None:
    """Create the job and its controllers: servers and master as ReplicaSets, trainers as a Job, all of equal rank."""
    job, cluster = submission.job, setup.cluster
    cluster.submit(job, submission.work)
    if job.servers is not None:
        cluster.set_replicas(job.name, Role.SERVER, job.server_count, priority=job.priority, spreads=True)
    cluster.set_replicas(job.name, Role.MASTER, job.master.replicas, priority=job.priority, spreads=True)
    cluster.set_replicas(job.name, Role.TRAINER, trainers, priority=job.priority)
