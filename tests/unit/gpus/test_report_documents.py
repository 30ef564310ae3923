"""Reports as NodeGpus objects: what the agent writes the operator reads, and nothing else."""

from __future__ import annotations

import pytest

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.errors import InvalidSpecError
from autoscaler.gpus.report_documents import make_object, make_status, parse_report, renewal_asked_at_s, to_time

NOW_S = 1_800_000_000.0
REPORT = NodeGpuReport(
    node=NodeName("n1"),
    gpus=(
        GpuReport(
            uuid="GPU-0",
            model="NVIDIA H100",
            name="nvidia0",
            verdict=GpuVerdict.HELD,
            low_since_s=NOW_S - 600.5,
            pods=(PodName("ml/a"), PodName("ml/b")),
            reason="nobody computed",
            busy_ratio=0.25,
            watts=84.0,
        ),
        GpuReport(uuid="MIG-1", model="", verdict=GpuVerdict.UNKNOWN),
    ),
    reported_at_s=NOW_S,
)


def written():
    return make_object(NodeName("n1"), "uid-1") | {"status": make_status(REPORT)}


def test_a_written_report_is_read_as_it_was():
    """Every field, also those that are empty."""
    assert parse_report(written()) == REPORT
    assert written()["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


def test_an_object_without_a_status_has_no_report():
    """Its agent has made it and not reported yet."""
    assert parse_report(make_object(NodeName("n1"), "")) is None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda status: status.update(gpus={}), None),
        (lambda status: status.update(gpus="x"), "status.gpus"),
        (lambda status: status.update(gpus=[{}] * 1_000_000), "status.gpus"),
        (lambda status: status.update(gpus=[7]), "status.gpus[0]"),
        (lambda status: status.update(reportTime="soon"), "status.reportTime"),
        (lambda status: status.update(reportTime=7), "status.reportTime"),
        (lambda status: status.pop("reportTime"), "status.reportTime"),
        (lambda status: status.update(reportTime="2020-01-01T00:00:00Z"), "status.gpus[0].lowSince"),
        (lambda status: status["gpus"][0].update(verdict="idle"), "status.gpus[0].verdict"),
        (lambda status: status["gpus"][0].update(lowSince="9" * 5000), "status.gpus[0].lowSince"),
        (lambda status: status["gpus"][0].update(watts=float("nan")), "status.gpus[0].watts"),
        (lambda status: status["gpus"][0].update(watts=True), "status.gpus[0].watts"),
        (lambda status: status["gpus"][0].update(watts=-0.1), "status.gpus[0].watts"),
        (lambda status: status["gpus"][0].update(watts=10**400), "status.gpus[0].watts"),
        (lambda status: status["gpus"][0].update(busyPercent=float("-inf")), "status.gpus[0].busyRatio"),
        (lambda status: status["gpus"][0].update(lowSince="1960-01-01T00:00:00Z"), "status.gpus[0].lowSince"),
        (lambda status: status["gpus"][0].update(reason="\ud800"), "status.gpus[0].reason"),
        (lambda status: status["gpus"][0].update(busyPercent=-1), "status.gpus[0].busyRatio"),
        (lambda status: status["gpus"][0].update(pods=["b/b", "a/a"]), "status.gpus[0].pods"),
        (lambda status: status["gpus"][0].update(pods=[None]), "status.gpus[0].pods"),
        (lambda status: status["gpus"][0].update(uuid="MIG-1"), "status.gpus[1].uuid"),
        (lambda status: status["gpus"][1].pop("uuid"), "status.gpus[1].uuid"),
    ],
)
def test_nonsense_is_refused_by_field(change, path):
    """A hostile or broken agent's report raises one typed error, whatever it holds."""
    raw = written()
    change(raw["status"])
    if path is None:
        assert parse_report(raw).gpus == ()
        return
    with pytest.raises(InvalidSpecError) as caught:
        parse_report(raw)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("spec", "asked"), [({"renewAfter": to_time(NOW_S)}, NOW_S), ({"renewAfter": "x"}, None), (7, None)]
)
def test_what_the_operator_asks_for(spec, asked):
    """A request in another form is none."""
    assert renewal_asked_at_s({"spec": spec}) == asked
