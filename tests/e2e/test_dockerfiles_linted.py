"""What hadolint has to say of the Dockerfiles.  That they build is shown by the images that the other tests run."""

from pathlib import Path

import pytest

from tests.harness.commands import run

DOCKERFILES = sorted((Path(__file__).parents[2] / "images").glob("*.Dockerfile"))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_the_linter_has_no_complaint(surroundings, path):
    assert run([str(surroundings.linter), "--no-color", str(path)]) == ""
