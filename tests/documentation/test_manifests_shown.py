"""The manifests of README and docs are taken by the parsers that their readers will meet."""

from pathlib import Path

import pytest

from autoscaler.manifests import parse_files
from tests.documentation.shown import shown_manifests

MANIFESTS = shown_manifests()


def test_the_pages_show_a_job():
    assert sum(manifest.content.get("kind") == "TrainingJob" for manifest in MANIFESTS) >= 2


@pytest.mark.parametrize("manifest", MANIFESTS, ids=str)
def test_edl_run_takes_what_is_shown(manifest, tmp_path: Path):
    """As it stands, without a word about fields that are not known."""
    file = tmp_path / "shown.yaml"
    file.write_text(manifest.text, encoding="utf-8")
    parse_files([file])
