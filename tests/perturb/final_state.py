"""State that is compared when the cluster has converged: everything but the nodes of pods.

Equal must be: each job's target as last planned; how many pods of each role and tier it has; that all of them are
bound, ready and without gates; its Deployment; and the web's pods, all bound.  Names and nodes of pods may differ:
which of several equal pods had to leave is decided by what stood at that moment, and a perturbation moves the moment.
The grade of surplus is written at its creation by the jobs of that moment, so it may differ for the same reason.
"""

from collections import Counter

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE, TIER


def end_of(server, targets):
    """A value that equal ends share, made of lines that people can read."""
    jobs = {job["metadata"]["uid"]: job["metadata"]["name"] for job in server.all(TRAINING_JOBS)}
    pods = Counter(_line(pod, jobs) for pod in server.all(PODS))
    return tuple(
        sorted(
            [
                *(f"target of {job}: {target}" for job, target in targets.items()),
                *(f"{count} x {line}" for line, count in pods.items()),
                *(f"deployment {one['metadata']['name']}" for one in server.all(DEPLOYMENTS)),
                *(f"node {one['metadata']['name']}" for one in server.all(NODES)),
            ]
        )
    )


def _line(pod, jobs):
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    labels = metadata.get("labels", {})
    owners = {jobs.get(ref["uid"]) for ref in metadata.get("ownerReferences", ())} - {None}
    words = [labels.get(JOB, "no job"), labels.get(ROLE, "web"), labels.get(TIER, "no tier")]
    if labels.get(ROLE) in {"trainer", "server"} and owners != {labels.get(JOB)}:
        words.append("of a job that is gone")
    words.append("bound" if "nodeName" in spec else "not bound")
    words.append(status.get("phase", ""))
    if spec.get("schedulingGates"):
        words.append("gated")
    if "deletionTimestamp" in metadata:
        words.append("leaving")
    return " ".join(words)
