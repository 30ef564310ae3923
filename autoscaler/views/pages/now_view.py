"""The cluster now: its picture, its jobs, its web load.  `edl get` prints the same documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.views.cluster.cluster_picture import ClusterPicture, cluster_picture
from autoscaler.views.cluster.pod_view import all_pods
from autoscaler.views.cluster.web_view import DeploymentView, deployment_views
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.jobs.job_view import JobView, job_views

MOST_JOBS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NowView:
    """`jobs`: those shown, of `job_count` that match the search."""

    query: str
    jobs: tuple[JobView, ...]
    job_count: int
    waiting_count: int
    deployments: tuple[DeploymentView, ...]
    picture: ClusterPicture


def now_view(documents: ClusterDocuments, *, query: str = "") -> NowView:
    """Return the view; of many jobs those whose name holds the query."""
    memo, jobs = documents.memo, job_views(documents)
    if query:
        jobs = tuple(job for job in jobs if query.casefold() in job.key.casefold())
    return NowView(
        query=query,
        jobs=jobs[:MOST_JOBS],
        job_count=len(jobs),
        waiting_count=sum(job.is_waiting for job in jobs),
        deployments=memo.once(deployment_views, documents.deployments, all_pods(documents)),
        picture=cluster_picture(documents),
    )
