"""`edl keep` and `edl top` as they are typed: bad input is refused before any place is asked."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.main import edl
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.report_documents import make_object, make_status
from tests.unit.cli.kube_place import NAMESPACE, node, refused, stage


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x", "--for", "721h"], "at most 720h"),
        (["x", "--for", "9" * 400 + "h"], "at most 720h"),
        (["x", "--for", "0.5s"], "1s at least"),
        (["x", "--for", "-1h"], "is not a duration"),
        (["x", "--for", "nan"], "is not a duration"),
        (["x", "--for", "inf"], "is not a duration"),
        (["x", "--for", "\u0663h"], "is not a duration"),
        (["x", "--for", ""], "is not a duration"),
        (["x", "--for", "tomorrow"], "is not a duration"),
        (["x"], "--for"),
        (["", "--for", "2h"], "name the pod"),
        (["pod/", "--for", "2h"], "name the pod"),
        (["ns/", "--for", "2h"], "name the pod"),
        (["tj/digits", "--for", "2h"], "name the pod as pod/NAME, not tj/digits"),
    ],
)
def test_a_keep_that_is_not_understood_is_a_usage_error(monkeypatch, words, told):
    """Nobody believes that a pod is kept which is not."""
    monkeypatch.setattr(PlaceSelector, "open", lambda *_, **__: pytest.fail("a place was asked"))
    done = CliRunner().invoke(edl, ["keep", *words])
    assert done.exit_code == Exit.USAGE
    assert told in done.output


@pytest.mark.parametrize("name", ["..", "a b", "web-9", "x" * 300, "\u202eweb"])
def test_a_keep_of_a_pod_that_cannot_be_is_refused(name):
    """Whatever is typed names a pod, and never another path of the API."""
    with stage() as (_, place):
        assert "there is no pod" in refused(Exit.NOT_FOUND, place.keep_pod, name, 60.0)


@pytest.fixture
def typed(monkeypatch):
    """`typed("top", ...)`: what `edl` prints, where a notebook and another pod have the two GPUs of a node."""
    gpus = (
        GpuReport(
            uuid="GPU-0", model="T4", verdict=GpuVerdict.ACTIVE, pods=(PodName(f"{NAMESPACE}/busy"),), watts=70.0
        ),
        GpuReport(
            uuid="GPU-1",
            model="T4",
            verdict=GpuVerdict.HELD,
            low_since_s=1767323045.0 - 600,
            pods=(PodName(f"{NAMESPACE}/notebook"),),
            watts=30.0,
        ),
    )
    report = NodeGpuReport(node=NodeName("n1"), gpus=gpus, reported_at_s=1767323045.0)
    monkeypatch.setattr("time.time", lambda: 1767323045.0)
    with stage() as (made, place):
        made.make(kinds.NODES, node("n1"))
        made.make(kinds.NODE_GPUS, make_object(NodeName("n1"), "") | {"status": make_status(report)})

        @contextmanager
        def opened(*_, **__):
            yield place

        monkeypatch.setattr(PlaceSelector, "open", opened)

        def run(*words):
            done = CliRunner().invoke(edl, words)
            assert done.exit_code == 0, done.output
            return done.output

        yield run


def test_top_sorts_and_prints_what_it_is_asked_for(typed):
    """Held GPUs first by default."""
    assert [line.split()[0] for line in typed("top").splitlines()] == ["NAME", "pod/notebook", "pod/busy"]
    assert [line.split()[0] for line in typed("top", "--sort-by", "watts", "--no-headers").splitlines()] == [
        "pod/busy",
        "pod/notebook",
    ]
    (only,) = json.loads(typed("top", "nodes", "-o", "json"))["items"]
    assert (only["name"], only["gpus"]["held"], only["heldSeconds"]) == ("n1", 1, 600.0)
    assert "REPORTED" in typed("top", "nodes", "-o", "wide")
    assert typed("top", "-o", "name").split() == ["pod/notebook", "pod/busy"]
    rows = typed("get", "gpus", "--sort-by", "pod").splitlines()[1:]
    assert [row.split()[1] for row in rows] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("top", "--sort-by", "age"), "held-for"),
        (("top", "gpus"), "pods"),
        (("top", "-o", "csv"), "json"),
        (("get", "gpus", "-w", "--sort-by", "pod"), "exclude one another"),
    ],
)
def test_another_word_is_a_usage_error_with_those_that_there_are(words, told):
    """As for every option."""
    done = CliRunner().invoke(edl, words)
    assert done.exit_code == Exit.USAGE
    assert told in done.output
