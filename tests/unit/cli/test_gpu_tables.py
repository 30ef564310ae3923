"""`edl get gpus` and `edl top`: who holds what, and who works."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from autoscaler.cli.commands.top import LOOK_EVERY_S, changes
from autoscaler.cli.exit_codes import CommandError
from autoscaler.cli.kubernetes.gpu_tables import gpu_columns, gpu_rows, jobs_of_pods, nodes_of_pods
from autoscaler.cli.kubernetes.top_lines import (
    Usage,
    UsedAmounts,
    disputed_gpus,
    holder_lines,
    node_lines,
    sort_lines,
)
from autoscaler.cli.kubernetes.top_tables import format_top
from autoscaler.cli.output.formats import format_objects
from autoscaler.cli.output.object_order import sort_objects
from autoscaler.cli.output.object_tables import ObjectList, format_table
from autoscaler.cli.place_values import TopOrder
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


def test_a_gpu_that_two_nodes_report_is_idle_on_neither():
    """As for the operator, which takes it from nobody; one whose report is too old contradicts nobody."""
    other = replace(REPORT, node=NodeName("n2"), gpus=(replace(HELD, pods=(PodName("lab/elsewhere"),)),))
    disputed = disputed_gpus([REPORT, other], NOW_S)
    rows = gpu_rows(written(), JOBS, NOW_S, disputed=disputed)
    told = [
        (row["row"]["pod"], row["row"]["verdict"], row["row"]["why"]) for row in rows if row["row"]["gpu"] == HELD.name
    ]
    assert told == [(pod, "active", "another node reports it, too") for pod in HELD.pods]
    for lines in (
        node_lines([REPORT, other], ["n1", "n2"], Usage(), NOW_S),
        holder_lines([REPORT, other], JOBS, Usage(), NOW_S, are_pods_apart=False, namespace=None),
    ):
        assert [one.count(GpuVerdict.HELD) for one in lines] == [0] * len(lines)
    assert disputed_gpus([REPORT, replace(other, reported_at_s=NOW_S - KEPT_S - 1)], NOW_S + 1) == frozenset()


def test_objects_without_a_readable_report_say_so():
    """One row each."""
    assert "has not reported yet" in " ".join(table(make_object(NodeName("n1"), ""))[1])
    broken = written()
    broken["status"]["gpus"][0]["verdict"] = "busy"
    assert "status.gpus[0].verdict" in " ".join(table(broken)[1])
    silent = written(replace(REPORT, gpus=()))
    assert "no GPUs, or its driver does not answer" in " ".join(table(silent)[1])


def listed(*reports):
    """As `edl get gpus` has them."""
    return ObjectList(
        objects=[written(one) for one in reports],
        columns={"NodeGpus": gpu_columns()},
        rows=lambda found: gpu_rows(found, JOBS, NOW_S),
    )


LONGER = replace(HELD, uuid="GPU-2", low_since_s=NOW_S - 90_000, pods=(PodName("lab/old"),), watts=9.0, busy_ratio=None)


@pytest.mark.parametrize(
    ("by", "pods"),
    [
        ("low-for", ["lab/notebook", "lab/other", "lab/old", "ml/bert-trainer-0"]),  # 43 min, 25 h, and none
        ("WATTS", ["lab/old", "lab/notebook", "lab/other", "ml/bert-trainer-0"]),  # 9, 84, 500
        ("busy", ["lab/notebook", "lab/other", "ml/bert-trainer-0", "lab/old"]),
        ("pod", ["lab/notebook", "lab/old", "lab/other", "ml/bert-trainer-0"]),
        (".metadata.name", ["lab/old", "ml/bert-trainer-0", "lab/notebook", "lab/other"]),
        ("{.metadata.name}", ["lab/old", "ml/bert-trainer-0", "lab/notebook", "lab/other"]),
        (".metadata.none", ["ml/bert-trainer-0", "lab/notebook", "lab/other", "lab/old"]),
    ],
)
def test_rows_of_all_nodes_are_sorted_by_values_not_by_words(by, pods):
    """A column or a field, rising, and last what has none."""
    reports = [REPORT, replace(REPORT, node=NodeName("n0"), gpus=(LONGER,))]
    lines = format_objects(sort_objects(listed(*reports), by, are_rows=True), "wide", is_single=False).splitlines()
    at = lines[0].index("POD")
    assert [line[at:].split()[0] for line in lines[1:]] == pods


def test_documents_are_sorted_as_whole_objects():
    """JSON has the objects, not the rows."""
    reports = [REPORT, replace(REPORT, node=NodeName("n0"), gpus=(LONGER,))]
    found = json.loads(format_objects(sort_objects(listed(*reports), "gpu", are_rows=False), "json", is_single=False))
    assert [one["metadata"]["name"] for one in found["items"]] == ["n1", "n0"]


def test_another_word_to_sort_by_is_refused_with_those_that_there_are():
    """An empty list has nothing to sort."""
    with pytest.raises(CommandError, match="low-for"):
        sort_objects(listed(REPORT), "age", are_rows=True)
    assert sort_objects(listed(), "age", are_rows=True).objects == []


def test_holders_of_idle_gpus_come_first():
    """Jobs and pods of no job, in one namespace or in all."""
    used = {
        "lab/notebook": UsedAmounts(cpu_milli=40, memory_bytes=1 << 30),
        "lab/other": UsedAmounts(cpu_milli=5, memory_bytes=801_628 << 10),
    }
    usage = Usage(pods=used)
    lines = holder_lines([REPORT], JOBS, usage, NOW_S, are_pods_apart=False, namespace=None)
    rows = [line.split() for line in format_top(lines, "table", has_namespaces=True).splitlines()]
    assert [row[1] for row in rows] == ["NAME", "pod/notebook", "pod/other", "tj/bert"]
    assert rows[1] == ["lab", "pod/notebook", "40m", "1Gi", "1", "0", "1", "0", "0", "0%", "84", "43m"]
    assert rows[2][2:4] == ["5m", "783Mi"]
    assert rows[3] == ["ml", "tj/bert", "-", "-", "1", "1", "0", "0", "0", "90%", "500", "-"]
    apart = holder_lines([REPORT], JOBS, usage, NOW_S, are_pods_apart=True, namespace="ml")
    assert format_top(apart, "table", has_namespaces=False, has_heading=False).split()[0] == "pod/bert-trainer-0"


def test_a_gpu_that_pods_of_one_job_share_counts_once_for_it():
    """It is one GPU, and draws its power once; each pod apart has it."""
    shared = replace(WORKS, pods=(PodName("ml/bert-trainer-0"), PodName("ml/bert-trainer-1")))
    report, jobs = replace(REPORT, gpus=(shared,)), {**JOBS, "ml/bert-trainer-1": "ml/bert"}
    (job,) = holder_lines([report], jobs, Usage(), NOW_S, are_pods_apart=False, namespace=None)
    assert (len(job.gpus), job.count(GpuVerdict.ACTIVE), job.watts) == (1, 1, 500.0)
    apart = holder_lines([report], jobs, Usage(), NOW_S, are_pods_apart=True, namespace=None)
    assert [(len(one.gpus), one.watts) for one in apart] == [(1, 500.0), (1, 500.0)]


def test_instances_of_a_divided_gpu_draw_its_power_once():
    """Each reports that of the whole GPU."""
    parts = tuple(
        replace(WORKS, uuid=f"MIG-{number}", name=f"nvidia0/gi{number}", pods=(PodName(f"ml/bert-trainer-{number}"),))
        for number in range(7)
    )
    report, jobs = replace(REPORT, gpus=(*parts, HELD)), {pod: "ml/bert" for one in parts for pod in one.pods}
    (node,) = node_lines([report], ["n1"], Usage(), NOW_S)
    assert (len(node.gpus), node.watts) == (8, 584.0)
    lines = holder_lines([report], jobs, Usage(), NOW_S, are_pods_apart=False, namespace="ml")
    assert [(len(one.gpus), one.watts) for one in lines] == [(7, 500.0)]


def test_nodes_without_a_report_are_told_too():
    """Nothing is known of their GPUs."""
    lines = node_lines([REPORT], ["n2", "n1"], Usage(), NOW_S)
    _, first, second = (line.split() for line in format_top(lines, "table", has_namespaces=False).splitlines())
    assert first == ["n1", "-", "-", "2", "1", "1", "0", "0", "45%", "584", "43m"]
    assert second[:4] == ["n2", "-", "-", "0"]


def test_a_wide_table_tells_models_nodes_and_the_age_of_reports():
    """And nothing of a node that reports nothing."""
    lines = node_lines([REPORT], ["n2", "n1"], Usage(), NOW_S + 90)
    heading, first, second = format_top(lines, "wide", has_namespaces=False).splitlines()
    assert heading.split()[-3:] == ["MODEL", "NODES", "REPORTED"]
    assert first.split()[-4:] == ["NVIDIA", "H100", "n1", "90s"]
    assert second.split()[-3:] == ["-", "-", "-"]


def test_scripts_get_figures_with_their_units():
    """JSON and YAML say the same; null is what nobody tells."""
    usage = Usage(pods={"lab/notebook": UsedAmounts(cpu_milli=40, memory_bytes=1 << 30)})
    lines = holder_lines([REPORT], JOBS, usage, NOW_S, are_pods_apart=False, namespace=None)
    found = json.loads(format_top(lines, "json", has_namespaces=True))
    assert yaml.safe_load(format_top(lines, "yaml", has_namespaces=True)) == found
    assert found["items"][0] == {
        "kind": "pod",
        "namespace": "lab",
        "name": "notebook",
        "cpuMilli": 40,
        "memoryBytes": 1 << 30,
        "gpus": {"total": 1, "active": 0, "held": 1, "free": 0, "unknown": 0},
        "busyRatio": 0.0,
        "watts": 84.0,
        "heldSeconds": 2580.0,
        "models": ["NVIDIA H100"],
        "nodes": ["n1"],
        "reportAgeSeconds": 0.0,
    }
    assert found["items"][2]["cpuMilli"] is None
    assert format_top(lines, "name", has_namespaces=True).splitlines() == ["pod/notebook", "pod/other", "tj/bert"]


@pytest.mark.parametrize(
    ("order", "first", "last"),
    [
        (TopOrder.NAME, "other", "bert"),  # by namespace before
        (TopOrder.CPU, "other", "bert"),
        (TopOrder.MEMORY, "notebook", "bert"),
        (TopOrder.WATTS, "bert", "other"),
        (TopOrder.BUSY, "bert", "other"),
        (TopOrder.HELD_FOR, "notebook", "bert"),
        (TopOrder.ACTIVE, "bert", "other"),
    ],
)
def test_lines_are_sorted_by_a_name_or_by_the_largest_figure(order, first, last):
    """What is not known comes last."""
    usage = {
        "lab/notebook": UsedAmounts(cpu_milli=40, memory_bytes=9),
        "lab/other": UsedAmounts(cpu_milli=50, memory_bytes=8),
    }
    lines = holder_lines([REPORT], JOBS, Usage(pods=usage), NOW_S, are_pods_apart=False, namespace=None)
    names = [one.name for one in sort_lines(lines, order)]
    assert (names[0 if order is not TopOrder.NAME else 1], names[-1]) == (first, last)


def test_a_watch_prints_what_has_changed_between_its_looks():
    """And pauses after each look."""
    pauses = []
    assert list(changes(iter(["a", "a", "b", "b", "a"]), pauses.append)) == ["a", "b", "a"]
    assert pauses == [LOOK_EVERY_S] * 5


def test_jobs_are_found_by_label():
    """Pods without it have none."""
    pods = [
        {"metadata": {"namespace": "ml", "name": "a", "labels": {"edl.dev/job": "bert"}}, "spec": {"nodeName": "n1"}},
        {"metadata": {"namespace": "ml", "name": "b"}},
    ]
    assert jobs_of_pods(pods) == {"ml/a": "ml/bert"}
    assert nodes_of_pods(pods) == {"ml/a": "n1", "ml/b": ""}


@pytest.mark.parametrize(("there", "why"), [("n2", "the pod runs on n2"), ("", "the pod has no node")])
def test_what_a_node_reports_of_a_pod_elsewhere_is_not_counted_for_its_job(there, why):
    """An agent that is broken or hostile names pods as it likes; the operator ignores it, too."""
    nodes = {"ml/bert-trainer-0": there}
    assert [row["row"]["job"] for row in gpu_rows(written(), JOBS, NOW_S)] == ["ml/bert", None, None]
    told = [(row["row"]["job"], row["row"]["why"]) for row in gpu_rows(written(), JOBS, NOW_S, nodes=nodes)]
    assert told[0] == (None, why)
    for are_pods_apart in (False, True):
        lines = holder_lines([REPORT], JOBS, Usage(), NOW_S, are_pods_apart=are_pods_apart, namespace="ml", nodes=nodes)
        assert [(one.name, len(one.gpus), one.watts) for one in lines] == [
            ("bert-trainer-0" if are_pods_apart else "bert", 0, None)
        ]
