"""What is pinned is what is built and what is accepted in its place.  Nothing here needs a control plane."""

import re
import shutil

import pytest

from tests.cluster import families
from tests.cluster.families import ALERT_FAMILIES, FAMILIES, KUBERNETES, KWOK, try_parse_version


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """A copy of the module files, to be changed."""
    copy = tmp_path / "modules"
    shutil.copytree(families.MODULES, copy)
    monkeypatch.setattr(families, "MODULES", copy)
    return copy


@pytest.mark.parametrize("family", [*FAMILIES, *ALERT_FAMILIES], ids=lambda family: family.name)
def test_every_module_is_held_by_its_sum(family):
    """go.sum names the bytes of what pins the programs, so nobody can slip in others."""
    version = "v{}.{}.{}".format(*family.version())
    assert f"{family.pinned_by} {version} h1:" in (family.folder / "go.sum").read_text()


def test_the_parts_of_kubernetes_are_of_one_release():
    """Its libraries are taken at the release of its programs, which need them so."""
    _, minor, patch = KUBERNETES.version()
    replaced = re.findall(r"^\s+(\S+) => (\S+) (\S+)$", (KUBERNETES.folder / "go.mod").read_text(), re.MULTILINE)
    assert len(replaced) > 30
    assert {(new, version) for _, new, version in replaced} == {(old, f"v0.{minor}.{patch}") for old, _, _ in replaced}


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
def test_another_pin_is_built_into_another_folder(own_modules, name):
    before = {family.name: family.key() for family in FAMILIES}
    file = own_modules / KWOK.name / name
    file.write_text(file.read_text() + "// another\n")
    after = {family.name: family.key() for family in FAMILIES}
    assert {key for key in before if before[key] != after[key]} == {KWOK.name}


@pytest.mark.parametrize(
    ("says", "serves"),
    [
        ("Kubernetes v1.36.3", True),
        ("Kubernetes v1.36.7-gke.1", True),
        ("Kubernetes v1.36.2", False),
        ("Kubernetes v1.35.9", False),
        ("Kubernetes v1.37.3", False),
        ("no version", False),
    ],
)
def test_only_the_same_minor_release_stands_in_for_the_pinned_one(says, serves):
    assert KUBERNETES.version() == (1, 36, 3)
    assert KUBERNETES.serves(try_parse_version(says)) is serves
