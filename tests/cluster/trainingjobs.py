"""A TrainingJob as a user writes it, and how a test bends it."""

import copy
import json
from pathlib import Path
from typing import Any, Final

GROUP: Final = {"group": "edl.dev", "version": "v1alpha1", "plural": "trainingjobs"}
DEFINITION: Final = Path(__file__).resolve().parents[2] / "charts" / "edl" / "files" / "trainingjobs.yaml"
GONE: Final = object()
"""In place of a value: the field is left out."""

_RESOURCES: Final = {"requests": {"cpu": "1", "memory": "1Gi"}}
_POD: Final = {"spec": {"containers": [{"name": "main", "image": "edl/trainer", "resources": _RESOURCES}]}}
JOB: Final[dict[str, Any]] = {
    "apiVersion": "edl.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "trainer": {"minReplicas": 2, "maxReplicas": 8, "template": _POD},
        "parameterServer": {"minReplicas": 1, "maxReplicas": 4, "template": _POD},
        "checkpoint": {"uri": "file:///checkpoints/digits"},
    },
}


def make_job(**edits: Any) -> dict[str, Any]:
    """JOB with some fields set: `make_job(**{"spec.trainer.minReplicas": 3})`; GONE takes one away."""
    job: dict[str, Any] = json.loads(json.dumps(JOB))  # not a deep copy: that would keep one template for both roles
    for path, value in edits.items():
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
        place: Any = job
        for step in steps:
            place = place[step] if isinstance(step, int) else place.setdefault(step, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return job
