"""`edl why`, `plan` and `what-if` about a saved moment, in this process: what is printed, and what is refused how."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.cli.main import main
from autoscaler.domain import Capabilities, Fairness, JobState, Policy, ServerSpec, Workload
from autoscaler.snapshots import SnapshotContent, format_document, to_document
from autoscaler.throughput import CurveShape, FittedCurve
from autoscaler.throughput.remaining_time import RemainingWork
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, shape

JOB_FILE = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: NAME}
spec:
  trainer:
    minReplicas: 3
    maxReplicas: 4
    template: {spec: {containers: [{name: t, command: [x], resources: {requests: {cpu: 1, memory: 64Mi}}}]}}
"""


@pytest.fixture
def saved(tmp_path):
    """One job of at most three trainers on two nodes of 1.9 cpus, and a deployment without replicas."""
    nodes = [node("n1", 1_900), node("n2", 1_900)]
    cluster = MemoryCluster(nodes, [job("digits", high=3)], [Workload(name="web", shape=shape(1_000))])
    driver = Driver(cluster, Policy())
    driver.settle()
    snapshot = SnapshotContent(now_s=cluster.now(), policy=Policy(), view=cluster.view(history=driver.history))
    file = tmp_path / "snapshot.json"
    file.write_text(format_document(to_document(snapshot)))
    return file


@pytest.fixture
def say(saved, monkeypatch, capsys):
    """Runs `edl WORDS --snapshot FILE` and returns what it prints, after checking its exit code."""

    def say(*words, code=0, file=saved):
        monkeypatch.setattr(sys, "argv", ["edl", *words, "--snapshot", str(file)])
        ended = 0
        try:
            main()
        except SystemExit as end:
            ended = end.code
        printed = capsys.readouterr()
        assert ended == code, printed
        return printed.out + printed.err

    return say


def test_why_for_people(say):
    """The size, the constraint, and what gives more."""
    assert say("why", "tj/digits") == (
        "tj/digits has 2 trainers (1 to 3 allowed)\n"
        "NodeFit: could grow with 1 cpu free on one node; n1 has 900m\n"
        "\n"
        "more with any one of these:\n"
        "  1 more: 3    1 cpu more on n1\n"
        "  1 more: 3    another node like n1\n"
    )


@pytest.fixture
def elastic(tmp_path):
    """A job of five trainers that lacks one of its three servers, and a deployment without replicas."""
    servers = ServerSpec(shape=shape(500), min_replicas=1, max_replicas=3, trainers_per_server=2)
    digits = replace(job("digits", high=5), servers=servers, waiting_share=0.5)
    cluster = MemoryCluster([node("n1", 8_000)], [digits], [Workload(name="web", shape=shape(1_000))])
    cluster.capabilities = Capabilities(servers_elastic=True)
    driver = Driver(cluster, Policy())
    driver.settle()
    cluster.lose("digits-server-2")
    snapshot = SnapshotContent(now_s=cluster.now(), policy=Policy(), view=cluster.view(history=driver.history))
    file = tmp_path / "elastic.json"
    file.write_text(format_document(to_document(snapshot)))
    return file


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_why_tells_that_a_job_waits_for_its_data(say, tmp_path, share):
    """Of a job without servers; below a quarter of the time it is not worth a line."""
    cluster = MemoryCluster([node("n1", 8_000)], [replace(job("digits", high=5), waiting_share=share)], [])
    driver = Driver(cluster, Policy())
    driver.settle()
    file = tmp_path / "group.json"
    snapshot = SnapshotContent(now_s=cluster.now(), policy=Policy(), view=cluster.view(history=driver.history))
    file.write_text(format_document(to_document(snapshot)))
    line = "Data: trainers wait for their data 50% of their time: give the loader more num_workers"
    assert (line in say("why", "tj/digits", file=file).splitlines()) == (share == 0.5)


def test_why_tells_both_roles(say, elastic):
    """How many servers a job has, how many it shall have, and what decides it."""
    told = say("why", "tj/digits", file=elastic).splitlines()
    assert told[0] == "tj/digits has 5 trainers (1 to 5 allowed)"
    assert told[1] == "and 2 parameter servers, going to 3 (1 to 3 allowed, one for every 2 trainers)"
    hint = "trainers wait for servers 50% of their time; 4 in place of 2: at most +33% (maxReplicas is 3)"
    assert told[2].startswith("This plan: gets 1 server")
    assert told[3].startswith("Max: at maxReplicas 5")
    assert told[4] == f"Servers: {hint}"


def test_why_for_scripts(say):
    """All of it as plain values, in both forms."""
    content = json.loads(say("why", "tj", "digits", "-o", "json"))
    assert content["decision"]["bottleneck"] == "NodeFit"
    assert [change["kind"] for answer in content["answers"] for change in answer["changes"]] == ["Resource", "Nodes"]
    assert "answers:" in say("why", "tj/digits", "-o", "yaml")


def test_why_not_a_certain_size(say):
    """A pair, since neither part helps alone."""
    assert "3 more: 5    maxReplicas 5 in place of 3 and " in say("why", "tj/digits", "--size", "5")


def test_a_dry_run_in_every_form(say):
    """As kubectl prints things."""
    assert "digits  1    2    2       3    -          Kept    NodeFit" in say("plan")
    assert "SHARE" in say("plan", "-o", "wide")
    assert json.loads(say("plan", "-o", "json"))["decisions"][0]["target"] == 2
    assert "decisions:" in say("plan", "-o", "yaml")


def test_plan_tells_how_long_each_job_takes_at_its_target(say, tmp_path):
    """In a range where its throughput there is not measured, and nothing where too little is known."""
    curve = FittedCurve(
        expected=CurveShape(work=0.01, serial=0.25), favourable=CurveShape(work=0.01, serial=0.125), sizes=(1, 2)
    )
    work = RemainingWork(samples=115_200, samples_per_s=80.0, trainers=1)
    known = replace(job("known", low=4, high=4), throughput=curve, remaining_work=work)
    steady = replace(job("steady", low=1, high=1), remaining_work=work)
    cluster = MemoryCluster([node("n1", 25_000)], [known, steady, job("new", low=1, high=1)])
    Driver(cluster, Policy()).settle()
    file = tmp_path / "remaining.json"
    file.write_text(format_document(to_document(SnapshotContent(now_s=0.0, policy=Policy(), view=cluster.view()))))
    heading, *rows = say("plan", file=file).splitlines()[:4]
    column = slice(heading.index("REMAINING"), heading.index("REASON"))
    assert {row.split()[0]: row[column].strip() for row in rows} == {
        "known": "9m40s (8-11m)",
        "new": "-",
        "steady": "23m",
    }
    told = {one["job"]: one["remaining"] for one in json.loads(say("plan", "-o", "json", file=file))["decisions"]}
    assert told["known"] == {"trainers": 4, "seconds": 580.0, "shortest_s": 480.0, "longest_s": 690.0}
    assert told["new"] is None
    assert "REMAINING" in say("plan", "-o", "wide", file=file)


def test_more_load_takes_surplus_and_the_rest_waits(say):
    """Jobs and web before and after, and who waits for what."""
    assert say("what-if", "--web", "6").splitlines() == [
        "with 6 replicas of web:",
        "NAME            NOW  BEFORE  AFTER  WHY",
        "tj/digits       2    2       1      could grow with 1 cpu free on one node; n1 has 900m",
        "deployment/web  0/0  0/0     1/6",
        "",
        "would wait:",
        "  deployment/web  NoCapacity  5 pods",
    ]
    content = json.loads(say("what-if", "--web", "web=6", "-o", "json"))
    assert [content["jobs"][0][column] for column in ("now", "before", "after")] == [2, 2, 1]
    assert content["deployments"][0]["after"] == {"running": 1, "wanted": 6}
    assert content["waiting"] == [{"name": "deployment/web", "reason": "NoCapacity", "why": "5 pods"}]


def test_a_job_that_is_over_or_suspended_waits_for_nothing(say, tmp_path):
    """It stands in the table, since its pods may be there yet."""
    over = replace(job("over"), state=JobState.OVER), replace(job("halted"), state=JobState.SUSPENDED)
    cluster = MemoryCluster([node("n1", 1_900)], [job("digits"), *over], [Workload(name="web", shape=shape(1_000))])
    driver = Driver(cluster, Policy())
    driver.settle()
    file = tmp_path / "over.json"
    snapshot = SnapshotContent(now_s=cluster.now(), policy=Policy(), view=cluster.view(history=driver.history))
    file.write_text(format_document(to_document(snapshot)))
    shown = say("what-if", "--web", "2", file=file)
    table, waiting = shown.split("would wait:")
    assert "tj/over" in table
    assert "tj/" not in waiting


def test_more_load_takes_servers_after_their_trainers(say, elastic):
    """Both roles of a job, in the table and for scripts."""
    rows = [line.split()[:5] for line in say("what-if", "--web", "5", file=elastic).splitlines()]
    assert ["tj/digits", "5", "5", "2"] in [row[:4] for row in rows]
    assert ["tj/digits", "servers", "2", "3", "1"] in rows
    (servers,) = json.loads(say("what-if", "--web", "5", "-o", "json", file=elastic))["servers"]
    assert servers == {"name": "tj/digits", "now": 2, "before": 3, "after": 1, "why": ""}


@pytest.mark.parametrize("written", ["4cpu,8Gi", "4000m,8Gi", "cpu=4,memory=8Gi", "4cpu,8Gi,2gpu"])
def test_more_nodes(say, written):
    """In the spellings that people use."""
    told = say("what-if", "--add-nodes", "2", "--shape", written, "--label", "zone=a")
    assert told.startswith("with 2 more nodes of 4 cpu, 8Gi memory")
    assert "tj/digits       2    2       3      at maxReplicas 3" in told


def test_a_node_less(say):
    """Named as get prints it, or as TYPE/NAME."""
    for name in ("n1", "node/n1"):
        assert "tj/digits       2    2       1" in say("what-if", "--remove-node", name)


def test_a_node_that_is_named_twice_is_gone_once(say):
    """Also where one of the two names says its kind."""
    twice = say("what-if", "--remove-node", "n1", "--remove-node", "node/n1")
    assert twice == say("what-if", "--remove-node", "n1")


def test_fairness_by_progress(say, tmp_path):
    """What a job of one trainer leaves goes to the job that scales badly; `why` tells how fast it is then."""
    bent = CurveShape(work=1.0, serial=0.1)
    curve = FittedCurve(expected=bent, favourable=bent, sizes=(1, 2, 4))
    jobs = [job("bent", high=32, throughput=curve), job("even", high=32), job("small", high=1)]
    cluster = MemoryCluster([node("n1", 25_000)], jobs)
    driver = Driver(cluster, Policy())
    driver.settle()
    file = tmp_path / "curves.json"
    snapshot = SnapshotContent(now_s=cluster.now(), policy=Policy(), view=cluster.view(history=driver.history))
    file.write_text(format_document(to_document(snapshot)))
    told = say("what-if", "--fairness", "Progress", file=file).splitlines()
    assert told[0] == "with policy.fairness Progress:"
    before, after = ({row.split()[0]: int(row.split()[at]) for row in told[2:5]} for at in (2, 3))
    assert before == {"tj/bent": 12, "tj/even": 12, "tj/small": 1}
    assert after["tj/bent"] > after["tj/even"]
    assert "Progress" not in say("why", "tj/even", file=file)
    by_progress = replace(snapshot, policy=replace(Policy(), fairness=Fairness.PROGRESS))
    file.write_text(format_document(to_document(by_progress)))
    assert "Progress: 1.44 of its throughput alone on its part of the cluster" in say("why", "tj/even", file=file)


def test_every_fairness_of_the_policy_may_be_asked_about(say):
    """The command line names them without importing the planner."""
    for fairness in Fairness:
        assert f"with policy.fairness {fairness}:" in say("what-if", "--fairness", str(fairness))
    said = say("what-if", "--fairness", "None", code=2)
    assert all(repr(str(fairness)) in said for fairness in Fairness)


@pytest.mark.parametrize("words", [["plan"], ["plan", "--help"]])
def test_output_that_cannot_be_written_is_said(say, monkeypatch, words):
    """A full disk behind `>` ends the command with one line and its code; what is left in the buffer is dropped."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert say(*words, code=1) == "edl: standard output cannot be written: No space left on device\n"


def test_one_more_job(say, tmp_path):
    """From the file that `edl run` would take; a name that is taken is refused."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB_FILE.replace("NAME", "other"))
    assert "would wait:\n  tj/other" in say("what-if", "--submit", str(file))
    file.write_text(JOB_FILE.replace("NAME", "digits"))
    assert "job digits already exists" in say("what-if", "--submit", str(file), code=4)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["why", "tj/digit"], 3, "did you mean digits"),
        (["why", "node/n1"], 2, "only jobs have a size"),
        (["what-if"], 2, "give at least one change"),
        (["what-if", "--add-nodes", "2"], 2, "go together"),
        (["what-if", "--label", "zone=a"], 2, "new nodes"),
        (["what-if", "--add-nodes", "2", "--shape", "16"], 2, "write it as"),
        (["what-if", "--add-nodes", "2", "--shape", "0cpu"], 2, "has no resources"),
        (["what-if", "--add-nodes", "2", "--shape", "1cpu,2cpu"], 2, "names cpu twice"),
        (["what-if", "--add-nodes", "2", "--shape", "1.5gpu"], 2, "no whole number"),
        (["what-if", "--web", "many"], 2, "not a number of replicas"),
        (["what-if", "--web", "shop=3"], 3, "known here: web"),
        (["what-if", "--web", "3", "--web", "web=5"], 2, "--web names web more than once"),
        (
            ["what-if", "--add-nodes", "1", "--shape", "1cpu", "--label", "zone=a", "--label", "zone=b"],
            2,
            "--label names zone more than once",
        ),
        (["what-if", "--remove-node", "n9"], 3, "there is no node/n9"),
        (["what-if", "--submit", "/nowhere.yaml"], 4, "cannot be read"),
        (["plan", "--run", "x"], 2, "choose one of"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said(say, words, code, said):
    """With the exit codes that scripts rely on."""
    assert said in " ".join(say(*words, code=code).split())


def test_a_file_that_is_no_moment_is_refused_by_its_field(say, saved, tmp_path):
    """And a file that is not there is not found."""
    whole = saved.read_text()
    saved.write_text(whole.replace('"phase": "ready"', '"phase": "happy"', 1))
    assert 'view.pods[0].phase: is "happy"' in say("plan", code=4)
    saved.write_text(whole[:-50])
    assert "not JSON" in say("plan", code=4)
    say("plan", code=3, file=tmp_path / "none.json")


def test_many_deployments_must_be_named(say, saved):
    """One number cannot mean two."""
    content = json.loads(saved.read_text())
    content["view"]["workloads"].append({**content["view"]["workloads"][0], "name": "shop"})
    saved.write_text(json.dumps(content))
    assert "NAME is one of shop, web" in say("what-if", "--web", "3", code=2)


def test_a_size_that_the_job_has_anyway_asks_for_more_than_it_has(say):
    """No trivial answers."""
    assert say("why", "tj/digits", "--size", "1") == say("why", "tj/digits")
