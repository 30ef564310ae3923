"""Reports on GPUs: ranges, ages, and which of two reports stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import FRESH_S, KEPT_S, NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.errors import InvalidSpecError

NOW_S = 1_800_000_000.0
HELD = GpuReport(
    uuid="GPU-0",
    model="NVIDIA H100",
    verdict=GpuVerdict.HELD,
    low_since_s=NOW_S - 600,
    pods=(PodName("ml/notebook"),),
)


def report(*gpus, at_s=NOW_S, node="n1"):
    return NodeGpuReport(node=NodeName(node), gpus=gpus, reported_at_s=at_s)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"uuid": ""}, "uuid"),
        ({"uuid": "GPU\n0"}, "uuid"),
        ({"model": "x" * 97}, "model"),
        ({"low_since_s": None}, "lowSince"),
        ({"verdict": GpuVerdict.ACTIVE}, "lowSince"),
        ({"low_since_s": float("nan")}, "lowSince"),
        ({"busy_ratio": 1.5}, "busyRatio"),
        ({"watts": -1.0}, "watts"),
        ({"pods": tuple(PodName(f"ns/{n:03}") for n in range(65))}, "pods"),
        ({"pods": (PodName("b/b"), PodName("a/a"))}, "pods"),
        ({"verdict": GpuVerdict.FREE}, "pods"),
    ],
)
def test_a_value_outside_its_range_is_refused_by_field(change, path):
    """No report carries a figure that a decision could not trust."""
    with pytest.raises(InvalidSpecError) as caught:
        replace(HELD, **change)
    assert caught.value.path == path


def test_too_many_gpus_one_twice_and_idle_after_the_report_are_refused():
    """A node's report is checked as a whole."""
    with pytest.raises(InvalidSpecError, match="129 GPUs"):
        report(*(replace(HELD, uuid=f"GPU-{n}") for n in range(129)))
    with pytest.raises(InvalidSpecError, match="there twice"):
        report(HELD, HELD)
    with pytest.raises(InvalidSpecError, match="later than the report"):
        report(replace(HELD, low_since_s=NOW_S + 1))


@pytest.mark.parametrize(
    ("age_s", "verdict", "is_fresh"),
    [
        (0.0, GpuVerdict.HELD, True),
        (FRESH_S, GpuVerdict.HELD, True),
        (FRESH_S + 1, GpuVerdict.HELD, False),
        (KEPT_S, GpuVerdict.HELD, False),
        (KEPT_S + 1, GpuVerdict.ACTIVE, False),
        (-FRESH_S - 1, GpuVerdict.ACTIVE, False),
    ],
)
def test_an_old_report_is_active_and_one_that_is_not_fresh_permits_nothing(age_s, verdict, is_fresh):
    """Missing or stale data never makes a GPU idle, nor does a clock that is ahead."""
    told = report(HELD)
    assert told.gpus_at(NOW_S + age_s)[0].verdict is verdict
    assert told.is_fresh(NOW_S + age_s) is is_fresh


def test_figures_for_people_make_no_new_report():
    """A node whose verdicts stand has nothing to write; a pod, a verdict or a window begun anew is news."""
    before = report(HELD)
    assert before.has_same_verdicts(report(replace(HELD, watts=80.0, busy_ratio=0.0, reason="later"), at_s=NOW_S + 60))
    assert not before.has_same_verdicts(report(replace(HELD, pods=())))
    assert not before.has_same_verdicts(report(replace(HELD, low_since_s=NOW_S - 300)))
    assert not before.has_same_verdicts(report(HELD, replace(HELD, uuid="GPU-1")))


def test_the_last_report_of_a_node_stays():
    """Its own time does not decide, since an agent's clock may have been ahead; a node that is gone has none."""
    reports = NO_REPORTS.changed([report(HELD), report(HELD, node="n2")])
    assert [(pod, node) for pod, node, _ in reports.of_pods(NOW_S)] == [("ml/notebook", "n1"), ("ml/notebook", "n2")]
    last = report(at_s=NOW_S - 5)
    assert reports.changed([last], gone=[NodeName("n2")]).by_node == {"n1": last}
