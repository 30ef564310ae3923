"""`edl get gpus` and `edl top`: who holds what, and who works."""

from __future__ import annotations

from autoscaler.cli.kubernetes.gpu_tables import gpu_columns, gpu_rows, jobs_of_pods
from autoscaler.cli.kubernetes.top_tables import Usage, UsedAmounts, top_holders, top_nodes
from autoscaler.cli.output.object_tables import format_table
from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import KEPT_S, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.report_documents import make_object, make_status

NOW_S = 1_800_000_000.0
WORKS = GpuReport(
    uuid="GPU-0",
    model="NVIDIA H100",
    name="nvidia0",
    verdict=GpuVerdict.ACTIVE,
    pods=(PodName("ml/bert-trainer-0"),),
    busy_ratio=0.9,
    watts=500.0,
)
HELD = GpuReport(
    uuid="GPU-1",
    model="NVIDIA H100",
    name="nvidia1",
    verdict=GpuVerdict.HELD,
    low_since_s=NOW_S - 2580,
    pods=(PodName("lab/notebook"), PodName("lab/other")),
    busy_ratio=0.0,
    watts=84.0,
)
REPORT = NodeGpuReport(node=NodeName("n1"), gpus=(WORKS, HELD), reported_at_s=NOW_S)
JOBS = {"ml/bert-trainer-0": "ml/bert"}


def table(raw, now_s=NOW_S):
    lines = format_table(gpu_rows(raw, JOBS, now_s), is_wide=False, columns={"NodeGpus": gpu_columns()})
    return [line.split() for line in lines]


def written(report=REPORT):
    return make_object(report.node, "") | {"status": make_status(report)}


def test_each_pod_of_a_gpu_has_a_row():
    """With its job where it has one, and how long the GPU has rested."""
    heading, *rows = table(written())
    assert heading == ["NODE", "GPU", "MODEL", "VERDICT", "LOW-FOR", "POD", "JOB", "WHY"]
    assert rows[0] == ["n1", "nvidia0", "NVIDIA", "H100", "active", "-", "ml/bert-trainer-0", "ml/bert", "-"]
    assert rows[1] == ["n1", "nvidia1", "NVIDIA", "H100", "held", "43m", "lab/notebook", "-", "-"]
    assert rows[2][6] == "lab/other"


def test_an_old_report_shows_nothing_as_idle():
    """As a plan would see it, with the reason."""
    *_, row = table(written(), NOW_S + KEPT_S + 1)
    assert row[4] == "active"
    assert " ".join(row).endswith("the report is old")


def test_objects_without_a_readable_report_say_so():
    """One row each."""
    assert "has not reported yet" in " ".join(table(make_object(NodeName("n1"), ""))[1])
    broken = written()
    broken["status"]["gpus"][0]["verdict"] = "busy"
    assert "status.gpus[0].verdict" in " ".join(table(broken)[1])


def test_holders_of_idle_gpus_come_first():
    """Jobs and pods of no job, in one namespace or in all."""
    usage = Usage(pods={"lab/notebook": UsedAmounts(cpu_milli=40, memory_bytes=1 << 30)})
    lines = top_holders([REPORT], JOBS, usage, NOW_S, are_pods_apart=False, namespace=None)
    rows = [line.split() for line in lines]
    assert [row[1] for row in rows] == ["NAME", "pod/notebook", "pod/other", "tj/bert"]
    assert rows[1] == ["lab", "pod/notebook", "40m", "1Gi", "1", "0", "1", "0", "0", "0%", "84", "43m"]
    assert rows[3] == ["ml", "tj/bert", "-", "-", "1", "1", "0", "0", "0", "90%", "500", "-"]
    (_, only) = top_holders([REPORT], JOBS, usage, NOW_S, are_pods_apart=True, namespace="ml")
    assert only.split()[0] == "pod/bert-trainer-0"


def test_nodes_without_a_report_are_told_too():
    """Nothing is known of their GPUs."""
    _, first, second = (line.split() for line in top_nodes([REPORT], ["n2", "n1"], Usage(), NOW_S))
    assert first == ["n1", "-", "-", "2", "1", "1", "0", "0", "45%", "584", "43m"]
    assert second[:4] == ["n2", "-", "-", "0"]


def test_jobs_are_found_by_label():
    """Pods without it have none."""
    pods = [
        {"metadata": {"namespace": "ml", "name": "a", "labels": {"edl.dev/job": "bert"}}},
        {"metadata": {"namespace": "ml", "name": "b"}},
    ]
    assert jobs_of_pods(pods) == {"ml/a": "ml/bert"}
