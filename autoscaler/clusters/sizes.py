"""What `edl scale` may set of a job, wherever it runs: pure, and told in the job's own words."""

from __future__ import annotations

from autoscaler.domain import Job


def find_problem(name: str, job: Job, role: str, count: int) -> str:
    """Why the job called `name` cannot be pinned at so many `trainers` or `servers`: "" if it can.  0: unpinned."""
    if role == "servers":
        return _find_server_problem(name, job, count)
    if count and not job.trainer.is_allowed(count):
        return f"spec.trainer.replicas: tj/{name} has the sizes {job.trainer.sizes}, or 0 for EDL's choice; not {count}"
    return ""


def _find_server_problem(name: str, job: Job, count: int) -> str:
    servers = job.servers
    if servers is None:
        return f"spec.parameterServer: tj/{name} has none, and so no tables; a job without servers gets none later"
    if count and not servers.is_allowed(count):
        bounds = f"{servers.min_replicas} to {servers.max_replicas} servers"
        return f"spec.parameterServer.replicas: tj/{name} may have {bounds}, or 0 for EDL's choice; not {count}"
    return ""
