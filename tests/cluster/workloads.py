"""Jobs and web services for stand-in nodes, and the classes that EDL's pods carry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kwok_nodes import IMAGE, Life, make_pod
from tests.cluster.trainingjobs import DEFINITION, make_job
from tests.harness.waiting import wait_for

CLASSES: Final = {"edl-core": 0, "edl-surplus": 0, **{f"edl-surplus-{grade}": -grade for grade in range(1, 9)}}
QUICK_TO_LEAVE: Final = Life(leave_after_s=0.2)


@contextmanager
def installed(plane: ControlPlane, api: client.ApiClient) -> Iterator[None]:
    """The definition of TrainingJob, which stays, and those of EDL's classes that do not exist yet."""
    plane.kubectl("apply", "-f", str(DEFINITION))
    plane.wait_served("trainingjobs.edl.dev")
    scheduling: Any = client.SchedulingV1Api(api)
    present = {found.metadata.name for found in scheduling.list_priority_class().items}
    missing = {name: value for name, value in CLASSES.items() if name not in present}
    for name, value in missing.items():
        scheduling.create_priority_class(
            {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never", "description": "EDL's"}
        )
        wait_class(api, name)
    yield
    for name in missing:
        scheduling.delete_priority_class(name)


def wait_class(api: client.ApiClient, name: str) -> None:
    """Wait until admission knows the priority class, which takes a moment after its creation."""
    core: Any = client.CoreV1Api(api)

    def is_taken() -> bool:
        try:
            core.create_namespaced_pod("default", make_pod("heeded", priorityClassName=name), dry_run="All")
        except ApiException:
            return False
        return True

    wait_for(f"the priority class {name}", is_taken)


def job_of(
    name: str,
    *,
    minimum: int = 2,
    maximum: int = 20,
    servers: int = 1,
    cpu: str = "1",
    server_cpu: str = "1",
    life: Life = QUICK_TO_LEAVE,
    grace_s: int = 5,
) -> dict[str, Any]:
    """A job with one master of 1 cpu."""
    trainer, server, master = (template_of(each, life=life, grace_s=grace_s) for each in (cpu, server_cpu, "1"))
    return make_job(
        **{
            "metadata.name": name,
            "spec.trainer": {"minReplicas": minimum, "maxReplicas": maximum, "template": trainer},
            "spec.parameterServer": {"minReplicas": servers, "maxReplicas": servers, "template": server},
            "spec.master": {"replicas": 1, "template": master},
        }
    )


def web_of(name: str, *, replicas: int, cpu: str = "1", life: Life = QUICK_TO_LEAVE) -> dict[str, Any]:
    """A Deployment of web pods, which start at once."""
    labels = {"app": name}
    template = template_of(cpu, life=life, grace_s=5)
    template["metadata"]["labels"] = labels
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def template_of(cpu: str, *, life: Life, grace_s: int) -> dict[str, Any]:
    """A pod's template."""
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    return {
        "metadata": {"annotations": life.annotations()},
        "spec": {"terminationGracePeriodSeconds": grace_s, "containers": [container]},
    }
