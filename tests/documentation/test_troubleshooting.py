"""Each message by which docs/troubleshooting.md names a symptom is a message of the product."""

import ast
import re
from typing import Final

import pytest

from tests.documentation.reasons import REASONS
from tests.documentation.shown import PROGRAMS, ROOT

PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SYMPTOMS: Final = [row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| ") and "`" in row.split("|")[1]]
QUOTED: Final = [span for row in SYMPTOMS for span in re.findall(r"`([^`]+)`", row)]
OF_OTHERS: Final = {
    "Error from server (Forbidden)": "kubectl",
    "ErrImagePull": "the kubelet",
    "ImagePullBackOff": "the kubelet",
    "Invalid value": "the API server",
    "ModuleNotFoundError": "Python",
    "No such file or directory": "the operating system",
    "Pending": "Kubernetes",
}


def texts(path):
    """A module's string constants, without docstrings, each f-string in its pieces; and the names of its classes."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    return [*(node.value for node in strings if id(node) not in docstrings), *names]


@pytest.fixture(scope="module")
def product():
    modules = [path for package in ("autoscaler", "master", "trainer_sdk") for path in (ROOT / package).rglob("*.py")]
    definition = (ROOT / "charts" / "edl" / "files" / "trainingjobs.yaml").read_text(encoding="utf-8")
    return "\n".join([*(text for path in modules for text in texts(path)), definition])


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_exists(quoted, product):
    """Somebody who searches the page for what a program has printed finds the row.  Values stand as `...`."""
    if quoted in OF_OTHERS or quoted in REASONS or quoted.startswith(PROGRAMS):
        return
    pieces = [piece.strip(" :,()") for part in quoted.split("...") for piece in re.split(r"(?<=\w)[:;] (?=\w)", part)]
    missing = [piece for piece in pieces if piece not in OF_OTHERS and piece not in product]
    assert not missing


def test_every_part_has_its_rows():
    for part in ("edl run", "A script alone", "A cluster"):
        section = PAGE.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
        assert section.count("\n| ") > 8
