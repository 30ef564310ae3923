"""What goes into an image is pinned, and nothing in it runs as root."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

IMAGES = sorted(Path("images").glob("*.Dockerfile"))
PAGES = [
    Path("README.md"),
    *sorted(Path("docs").glob("*.md")),
    *sorted(Path("docs/reports").glob("*.md")),
    *sorted(Path("images").glob("*.*")),
    *sorted(Path("examples").rglob("*.yaml")),
    *sorted(Path("charts").rglob("*.md")),
    *sorted(Path("charts").rglob("*.tpl")),
    *sorted(Path("charts").rglob("*.yaml")),
]


def instructions(path):
    """(word, rest) of each, lines that go on joined."""
    text = re.sub(r"\\\n\s*", "", "\n".join(x for x in path.read_text().splitlines() if not x.startswith("#")))
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_bases_are_named_by_digest_and_no_digest_is_assumed(path):
    found = instructions(path)
    bases = [rest.partition(" AS ")[0] for word, rest in found if word == "FROM"]
    assert len(bases) >= 2, "built in one stage, run in another"
    for base in bases:
        name = re.fullmatch(r"[a-z]+:[\w.-]+@\$\{(\w+_DIGEST)\}", base)
        assert name, base
        assert ("ARG", name[1]) in found


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_it_does_not_run_as_root(path):
    after = [word for word, _ in instructions(path)]
    assert instructions(path)[len(after) - 1 - after[::-1].index("USER")] == ("USER", "65532:65532")
    assert after[-3:] == ["USER", "WORKDIR", "CMD"]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_packages_come_with_hashes(path):
    """Or are this checkout; Go's come by go.sum."""
    commands = [part.strip() for word, rest in instructions(path) if word == "RUN" for part in rest.split("&&")]
    for command in commands:
        if "pip install" in command:
            assert "--no-deps" in command
            assert "--require-hashes" in command or command.endswith(" /source")
        assert not re.search(r"\b(apt-get|apk|curl|wget)\b", command)


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_what_is_copied_is_there_and_not_ignored(path):
    sent = {line[1:] for line in Path(".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, rest in instructions(path):
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert Path(source).exists(), source
                assert any(source == name or source.startswith(f"{name}/") for name in sent), source


def test_the_requirements_of_images_are_fresh():
    command = [sys.executable, "tools/image_requirements.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_chart_has_no_image_of_its_own():
    """What it would name by default somebody else could publish (ADR 0163)."""
    values = yaml.safe_load(Path("charts/edl/values.yaml").read_text())
    assert (values["image"]["repository"], values["etcd"]["image"]["repository"]) == ("", "")


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_no_page_names_an_image_of_ours_without_a_registry(path):
    """`edl/operator` alone is a name in a public registry, which the project does not own."""
    named = re.findall(
        r"(?:image:|repository=|-t|push|FROM)\s*\"?([\w./-]*edl/(?:operator|master|trainer|etcd)\b)", path.read_text()
    )
    assert [image for image in named if not image.startswith(("REGISTRY/", "registry.example/"))] == []


def test_the_pages_name_images():
    """So that the test above cannot pass on nothing."""
    assert sum("edl/trainer:" in path.read_text() for path in PAGES) >= 2
