"""Package, chart, images and changelog name one version, so that a release is one thing."""

import re
import tomllib

import pytest
import yaml

from tests.documentation.shown import ROOT
from tests.e2e.dockerfiles import parse

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
IMAGES = sorted((ROOT / "images").glob("*.Dockerfile"))


def test_the_chart_has_the_version_of_the_package():
    """`version` is the chart's own and `appVersion` the operator's; both are released together."""
    chart = yaml.safe_load((ROOT / "charts/edl/Chart.yaml").read_text(encoding="utf-8"))

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


@pytest.mark.parametrize("file", IMAGES, ids=lambda file: file.stem)
def test_an_image_is_labelled_with_title_version_revision_and_licence(file):
    """The labels that registries and scanners show are those of the image specification."""
    labels = parse(file.read_text(encoding="utf-8"))[-1].last("LABEL").variables()

    prefix = "org.opencontainers.image."
    assert labels.pop(f"{prefix}description")
    assert labels == {
        f"{prefix}title": f"edl/{file.stem}",
        f"{prefix}version": VERSION,
        f"{prefix}revision": "${REVISION}",
        f"{prefix}licenses": "Apache-2.0",
    }


def test_the_newest_section_of_the_changelog_is_this_version():
    """A version that is built is one that the changelog tells of."""
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert headings[0] == VERSION
