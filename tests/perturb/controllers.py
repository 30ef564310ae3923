"""The controller that deletes pods of jobs: those that have ended, and gated pods of a job that is not active.

`autoscaler.operator` does this after it has judged why a pod ended; here every end is a failure.
"""

import asyncio
from contextlib import suppress

from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, controller_of
from autoscaler.clusters.kubernetes.objects.labels import GATE
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.domain import JobState
from autoscaler.errors import ClusterError

EVERY_S = 0.5


async def run_pod_controller(one):
    """Until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        views = one.cluster.views
        for job in list(views.jobs.known.values()):
            is_active = views.jobs.runtime(job).state is JobState.ACTIVE
            for raw in views.pods.of_job(job.key):
                if controller_of(raw).get("uid") != job.uid or "deletionTimestamp" in raw["metadata"]:
                    continue
                has_ended = raw["status"].get("phase") in ENDED_PHASES
                if has_ended or (GATE in gates_of(raw) and not is_active):
                    with suppress(ClusterError):
                        await one.cluster.delete_pod(raw)
