"""The jobs beside the Kubernetes web service are the same files that `edl run` takes."""

from pathlib import Path

import pytest
import yaml

from autoscaler.manifests import parse_files

EXAMPLES = Path("examples/kubernetes")


@pytest.mark.parametrize("name", ["digits", "squares"])
def test_a_job_is_taken_by_edl_run_as_it_is(name):
    """Only what a process cannot honour is set aside, and said."""
    manifests = parse_files([EXAMPLES / f"{name}.yaml"])
    (job,) = manifests.jobs
    assert job.name == name
    assert job.checkpoint.uri == f"file:///tmp/edl-checkpoints/{name}"
    others = [note for note in manifests.notices if "no model is kept" not in note]
    assert all(note.endswith(("is not used by the local cluster", "in this version")) for note in others)
    assert len(manifests.notices) - len(others) == (name == "squares")  # it has no parameter servers


def test_an_autoscaler_stands_beside_two_jobs_and_nothing_else_scales_its_web():
    things = [thing for path in EXAMPLES.glob("*.yaml") for thing in yaml.safe_load_all(path.read_text())]
    kinds = [thing["kind"] for thing in things]
    assert kinds.count("TrainingJob") == 2
    (autoscaler,) = (thing for thing in things if thing["kind"] == "HorizontalPodAutoscaler")
    (web,) = (thing for thing in things if thing["kind"] == "Deployment")
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == web["metadata"]["name"]
    assert "replicas" not in web["spec"]
