"""Pods that hold GPUs and use none: the page tells them by the operator's rule (promise A12)."""

import pytest

from autoscaler.domain import Pod, PodPhase, Role, Shape, Tier
from autoscaler.domain.gpu_reports import FRESH_S, KEPT_S, NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.gpus.report_documents import make_object, make_status
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.gpu_use import idle_pods_of
from autoscaler.views.cluster.pod_view import Use, all_pods
from autoscaler.views.documents import ClusterDocuments
from tests.harness.page_cluster import NOW_S, node, pod

NAME = "nb/alice"
HELD, ACTIVE = GpuVerdict.HELD, GpuVerdict.ACTIVE


def report(where, *verdicts, age_s=0.0, uuid="u"):
    at_s = NOW_S - age_s
    gpus = [
        GpuReport(
            uuid=f"{uuid}{number}",
            model="T4",
            verdict=verdict,
            low_since_s=at_s - 60 if verdict is HELD else None,
            pods=(NAME,),
        )
        for number, verdict in enumerate(verdicts)
    ]
    return NodeGpuReport(node=where, gpus=tuple(gpus), reported_at_s=at_s)


CASES = {
    "none of two is used": ([report("n", HELD, HELD)], True),
    "one of two is used": ([report("n", HELD, ACTIVE)], False),
    "one of two is not told": ([report("n", HELD)], False),
    "nothing is told": ([], False),
    "another node tells it": ([report("m", HELD, HELD)], False),
    "another node tells it too, of other GPUs": ([report("n", HELD, HELD), report("m", ACTIVE, uuid="v")], True),
    "two nodes tell it of the same GPUs": ([report("n", HELD, HELD), report("m", HELD, HELD)], False),
    "the other node's report is old": ([report("n", HELD, HELD), report("m", HELD, HELD, age_s=KEPT_S + 1)], True),
    "it is old": ([report("n", HELD, HELD, age_s=KEPT_S + 1)], False),
    "its clock is ahead": ([report("n", HELD, HELD, age_s=-FRESH_S - 1)], False),
}


@pytest.mark.parametrize("is_ready", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_the_page_and_the_operator_agree_on_who_uses_no_gpu(case, is_ready):
    reports, is_idle = CASES[case]
    raw = pod("alice", on="n", namespace="nb", deployment="notebook", gpus=2, is_ready=is_ready)
    documents = ClusterDocuments(
        now_s=NOW_S,
        nodes=(node("n", gpus=8), node("m", gpus=8)),
        pods=(raw,),
        node_gpus=tuple(make_object(one.node, "") | {"status": make_status(one)} for one in reports),
    )
    (shown,) = all_pods(documents)
    planned = Pod(
        name=NAME,
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        job=None,
        shape=Shape(requests=shown.requests),
        phase=PodPhase.READY if is_ready else PodPhase.STARTING,
        node="n",
    )
    uses = GpuUses(NO_REPORTS.changed(reports))
    found = idle_pods_of([planned], uses, NOW_S, offset_s=0.0, consent_of=lambda _: Consent())
    assert bool(found) == (shown.use is Use.IDLE) == (is_idle and is_ready)
