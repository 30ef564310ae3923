"""The manifests of README and docs are taken by the parsers that their readers will meet."""

import copy
from pathlib import Path

import pytest
import yaml

from autoscaler.cli.kubernetes.validation import validate_files
from autoscaler.manifests import parse_files
from tests.documentation.shown import ROOT, shown_manifests

EXAMPLES = ROOT / "examples" / "kubernetes"
MANIFESTS = shown_manifests()


def test_the_pages_show_a_job():
    assert sum(manifest.content.get("kind") == "TrainingJob" for manifest in MANIFESTS) >= 2


@pytest.mark.parametrize("manifest", MANIFESTS, ids=str)
def test_edl_run_takes_what_is_shown(manifest, tmp_path: Path):
    """As it stands, without a word about fields that are not known."""
    file = tmp_path / "shown.yaml"
    file.write_text(manifest.text, encoding="utf-8")
    parse_files([file])


@pytest.mark.parametrize("path", ["digits", "squares", "torch/digits-torch"])
def test_a_cluster_takes_the_examples(path):
    """As the definition and the operator judge them."""
    found = validate_files([EXAMPLES / f"{path}.yaml"])
    name = path.rpartition("/")[2]
    assert found.jobs == (name,)
    assert ["no model is kept" in notice for notice in found.notices] == [True] * (
        name == "squares"
    )  # it has no servers


@pytest.mark.parametrize("manifest", [m for m in MANIFESTS if m.content.get("kind") == "TrainingJob"], ids=str)
def test_a_cluster_takes_what_is_shown_but_for_what_only_a_cluster_needs(manifest, tmp_path: Path):
    """An image for the trainers, and a folder that all pods reach; the guide says so."""
    job = copy.deepcopy(manifest.content)
    job["spec"]["checkpoint"]["uri"] = "file:///shared/digits"
    job["spec"]["trainer"]["template"]["spec"]["containers"][0]["image"] = "edl/trainer"
    file = tmp_path / "shown.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    validate_files([file])
