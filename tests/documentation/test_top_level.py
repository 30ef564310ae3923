"""The top level of the repository holds what the README tells of, and nothing that a script or a tool left there."""

import subprocess

import pytest

from tests.documentation.shown import ROOT

PACKAGES = {"autoscaler", "bench", "experiments", "master", "tests", "tools", "trainer_sdk"}
FOLDERS = {".ci", "charts", "docs", "examples", "images", "requirements"}
FILES = {
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "pyproject.toml",
}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nothing tells what is tracked")
def test_nothing_stray_is_tracked():
    """`git add -A` takes what a run of a script has written there, too."""
    shown = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path.partition("/")[0] for path in shown.splitlines()} == PACKAGES | FOLDERS | FILES
