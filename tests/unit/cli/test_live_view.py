"""The live view and the tables are pure: a snapshot in, a picture out."""

import asyncio
import io
import re
from dataclasses import replace

import click
import pytest
from rich.console import Console

from autoscaler.cli.local.describe_run import job_lines
from autoscaler.cli.local.foreground import RunOutput, _print_event
from autoscaler.cli.local.run_place import job_facts_of
from autoscaler.cli.main import edl
from autoscaler.cli.output.live_view import draw
from autoscaler.cli.output.object_tables import GrowingTable, format_table
from autoscaler.cli.output.phrases import format_age
from autoscaler.cli.places import JobFacts
from autoscaler.clusters.local.run.object_documents import deployment_object, job_object, node_object, pod_object
from autoscaler.clusters.local.run.run_samples import sample_of
from autoscaler.clusters.local.run.run_snapshot import (
    DecisionLine,
    DeploymentLine,
    JobLine,
    NodeLine,
    PodLine,
    RunSnapshot,
)
from autoscaler.clusters.local.run_files.run_journal import RunEvent
from autoscaler.domain import Bottleneck, Decision, PodPhase, Reason, Resources, Role, Tier
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from autoscaler.jobs.training_health import MasterReport
from autoscaler.manifests.api_types import AfterServerLoss
from master.api.master_status import JobPhase

REQUESTS = Resources(cpu_milli=1000, memory_bytes=1 << 29, extended=(("pods", 1),))


def pod(name, role, owner, phase=PodPhase.READY, cpu_milli=1000):
    return PodLine(
        name=name,
        role=role,
        tier=Tier.EXTERNAL if role is Role.EXTERNAL else Tier.CORE,
        owner=owner,
        ordinal=0,
        phase=phase,
        node="node-1",
        requests=replace(REQUESTS, cpu_milli=cpu_milli),
        restarts=0,
        age_s=75.0,
        pending_s=0.2,
        pid=77,
        port=None,
        gpus=(),
        reason="",
        is_unschedulable=False,
        log="logs/x.log",
    )


DECISION = Decision(
    job="digits",
    now=4,
    target=2,
    min=2,
    max=8,
    servers=1,
    servers_target=1,
    reason=Reason.SHRUNK,
    bottleneck=Bottleneck.NODE_FIT,
    message="2 trainers; room for web-3",
)
PROGRESS = JobProgress(
    phase=JobPhase.TRAINING,
    total=1000,
    done=400,
    committed=200,
    epochs=10,
    samples_per_s=1234.5,
    metrics=(("loss", 0.125),),
)
MODEL = replace(PROGRESS, lineage=1)
JOB = JobLine(
    name="digits",
    namespace="default",
    condition="Running",
    message="",
    age_s=75.0,
    ended_s=None,
    weight=100,
    priority_class="edl-core",
    priority=0,
    min=2,
    max=8,
    pinned=0,
    now=4,
    target=2,
    servers=1,
    servers_target=2,
    servers_leaving=0,
    servers_min=1,
    servers_max=4,
    servers_pinned=0,
    trainers_per_server=2,
    is_ratio_measured=False,
    copies=1,
    after_loss=AfterServerLoss.KEEP,
    has_master=True,
    failures=0,
    backoff_limit=6,
    decision=DECISION,
    progress=PROGRESS,
    checkpoint_uri="/c",
)
PODS = (
    pod("digits-trainer-0", Role.TRAINER, "digits"),
    pod("digits-trainer-1", Role.TRAINER, "digits", PodPhase.TERMINATING),
    pod("digits-master-0", Role.MASTER, "digits", cpu_milli=500),
    pod("web-0", Role.EXTERNAL, "web"),
)
WEB = DeploymentLine(name="web", namespace="default", wanted=3, ready=1, pending=2, starting=0, age_s=75.0)
NODE = NodeLine(name="node-1", capacity=Resources(cpu_milli=4000, memory_bytes=8 << 30), is_open=True, pods=PODS)
SNAPSHOT = RunSnapshot(
    name="20260102-150405-digits",
    folder="/runs/x",
    t_s=75.0,
    nodes=(NODE,),
    pods=PODS,
    jobs=(JOB,),
    deployments=(WEB,),
    decisions=(DecisionLine(t_s=70.0, decision=DECISION),),
)


def drawn(snapshot, events=(), width=140, height=50):
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(draw(snapshot, events, width=width, height=height))
    return out.getvalue()


def test_the_picture_shows_nodes_sizes_progress_and_reasons():
    """What a user wants to know at a glance."""
    text = drawn(SNAPSHOT)
    for words in (
        "node-1",
        "3500m/4",
        "digits",
        "4/10",
        "1/2",
        "40%",
        "20%",
        "1,234",
        "0.1250",
        "2 wait for free capacity",
    ):
        assert words in text, words
    assert "4 → 2" in text
    assert "room for web-3" in text


HOSTILE = RunEvent(
    number=1,
    t_s=1.0,
    kind="Failed",
    object="pod/a",
    reason="Exited",
    message="exited\x1b[2J\x1b]0;mine\x07\n  | \x9b2J",
)


def test_what_a_trainer_wrote_does_not_move_the_terminal_of_the_live_view():
    """A trainer's last words stand in the run's events: they cleared the screen, and could rename it."""
    assert "exited\\x1b[2J" in drawn(SNAPSHOT, [HOSTILE])


def test_what_a_trainer_wrote_does_not_move_the_terminal_of_a_run(capsys):
    """Nor where `edl run` tells its events as lines."""
    _print_event(HOSTILE, RunOutput.LINES, asyncio.Event())
    told = capsys.readouterr().out
    assert not set(told) & {"\x1b", "\x07", "\x9b"}
    assert "\\x1b]0;mine" in told


def test_the_bar_of_a_node_is_as_long_as_what_stands_there():
    """Four cells a core: 1 web, half a master, 1 trainer, 1 that leaves, half a core free."""
    (row,) = [line for line in drawn(SNAPSHOT).splitlines() if "node-1" in line]
    assert "████▒▒████░░░░··" in row


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 40), (200, 60)])
@pytest.mark.parametrize("nodes", [4, 300])
def test_the_picture_fits_the_terminal(width, height, nodes):
    """No number is cut off, no line is lost below; the newest decision and event are there."""
    long_progress = replace(PROGRESS, total=3_000_000, done=2_999_000, epochs=3000)
    jobs = tuple(replace(JOB, name=f"a-job-with-quite-a-long-name-{i}", progress=long_progress) for i in range(2))
    decisions = tuple(DecisionLine(t_s=float(i), decision=DECISION) for i in range(100, 120))
    events = tuple(
        RunEvent(number=i, t_s=float(i), kind="Exited", object="pod/digits-trainer-0", reason="Gone", message="x" * 200)
        for i in range(50)
    )
    many = tuple(replace(NODE, name=f"node-{i}") for i in range(nodes))
    picture = drawn(replace(SNAPSHOT, nodes=many, jobs=jobs, decisions=decisions), events, width, height)
    lines = picture.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < height
    heading = next(line for line in lines if "target" in line)
    assert "…" not in heading
    assert "2999/3000" in picture
    assert "119.0s" in picture
    assert "49.0s" in picture


@pytest.mark.parametrize("width", [40, 60, 79])
def test_a_narrow_picture_leaves_columns_out_and_keeps_the_names(width):
    """The names of nodes and jobs went first, and every number lost its end."""
    lines = drawn(replace(SNAPSHOT, jobs=(replace(JOB, condition="Completed"),)), width=width).splitlines()
    assert max(map(len, lines)) <= width
    heading = next(line for line in lines if "target" in line)
    row = lines[lines.index(heading) + 1]
    node = next(line for line in lines if "node-1" in line)
    assert "…" not in heading + row + node
    assert row.split()[:2] == ["digits", "Completed"]
    assert "1/2" in row
    assert "3500m/4" in node


def test_only_changes_are_shown_as_decisions():
    """A size that stays is told once, as the reason of the size."""
    kept = replace(DECISION, reason=Reason.KEPT, message="at maxReplicas")
    text = drawn(
        replace(SNAPSHOT, jobs=(replace(JOB, decision=kept),), decisions=(DecisionLine(t_s=1, decision=kept),))
    )
    assert text.count("at maxReplicas") == 1
    assert "decisions" not in text


def test_an_empty_run_can_be_drawn():
    """At the first moment there is nothing yet."""
    assert "EDL" in drawn(replace(SNAPSHOT, nodes=(), pods=(), jobs=(), deployments=(), decisions=()))


def test_tables_are_aligned_and_wide_ones_say_why():
    """As kubectl prints them."""
    heading, row = format_table([job_object(JOB)], is_wide=True)
    assert heading.startswith("NAME    PHASE    MIN  NOW  TARGET  MAX")
    assert row.startswith("digits  Running  2    4    2       8")
    assert row.endswith("2 trainers; room for web-3")
    assert heading.index("LOSS") == row.index("0.125")
    assert heading.index("SERVERS") == row.index("1/2")
    assert heading.index("MAX-SERVERS") == row.index("4 ", heading.index("MIN-SERVERS"))


def test_every_type_has_a_table():
    """Nothing that can be asked for is without columns."""
    for found in (job_object(JOB), node_object(NODE), pod_object(PODS[0]), deployment_object(WEB)):
        assert len(format_table([found], is_wide=True)) == 2


def test_who_is_connected_is_a_list_for_scripts():
    """In an order that does not change from one look to the next."""
    known = replace(JOB, progress=replace(PROGRESS, connected=frozenset({"digits-trainer-1", "digits-server-0"})))
    assert job_object(known)["status"]["progress"]["connected"] == ["digits-server-0", "digits-trainer-1"]


def test_ages_as_kubectl():
    """Seconds, minutes, hours, days."""
    ages = [format_age(s) for s in (5, 119, 200, 3000, 7500, 172_799, 172_800)]
    assert ages == ["5s", "119s", "3m20s", "50m", "2h5m", "47h59m", "2d"]


def test_samples_count_millicores_by_kind():
    """The figure is drawn from them."""
    sample = sample_of(SNAPSHOT)
    assert sample["nodes"]["node-1"] == {
        "capacity_millicores": 4000,
        "web": 1000,
        "trainers": 2000,
        "servers": 0,
        "masters": 500,
    }
    assert sample["jobs"]["digits"]["committed"] == 200
    assert (sample["jobs"]["digits"]["servers"], sample["jobs"]["digits"]["servers_target"]) == (1, 2)
    assert sample["workloads"]["web"]["pending"] == 2


def test_a_diverged_loss_is_shown_and_recorded_as_nothing():
    """A user's NaN must never stop a run."""
    diverged = replace(JOB, progress=replace(PROGRESS, metrics=(("loss", float("nan")),)))
    snapshot = replace(SNAPSHOT, jobs=(diverged,))
    assert "nan" in drawn(snapshot)
    assert sample_of(snapshot)["jobs"]["digits"]["loss"] is None


def test_a_watched_table_stays_aligned():
    """A short name after a long one keeps its columns."""
    table = GrowingTable(is_wide=False)
    heading, first = table.add(pod_object(PODS[0]))
    (second,) = table.add(pod_object(PODS[3]))
    assert heading.index("STATUS") == first.index("Running") == second.index("Running")


def test_describe_answers_why_before_anything_long():
    """Ten lines of a job, each within a terminal."""
    lines = job_lines(job_object(JOB))
    assert "Why:         2 trainers; room for web-3" in lines
    assert "Trainers:    4 now, 2 wanted (2 to 8 allowed)" in lines
    assert "Servers:     1 now, 2 wanted (1 to 4 allowed, one for every 2 trainers)" in lines
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"is_ratio_measured": True},
            "(1 to 4 allowed, one for every 2 trainers, as measured by how long trainers wait for them)",
        ),
        ({"servers_pinned": 3}, "(pinned to 3 of 1 to 4)"),
        ({"servers_max": 1, "servers_target": 1}, "1 now, 1 wanted (always 1)"),
        ({"progress": replace(PROGRESS, moving=12)}, "; 12 buckets are moving"),
        ({"servers_leaving": 1}, "; 1 is leaving"),
        ({"copies": 2, "progress": MODEL}, "one for every 2 trainers); 2 copies of each bucket"),
        ({"copies": 2, "progress": replace(MODEL, single_copy_buckets=64)}, "; 64 buckets have one copy, 2 are wanted"),
        ({"copies": 2, "servers": 0, "progress": MODEL}, "one for every 2 trainers)"),
        ({"copies": 2, "progress": replace(MODEL, lineage=0)}, "one for every 2 trainers)"),
    ],
)
def test_describe_tells_how_many_servers_and_why(changed, words):
    """Pinned, fixed, and while their share of the model is on its way."""
    (line,) = [line for line in job_lines(job_object(replace(JOB, **changed))) if line.startswith("Servers:")]
    assert line.endswith(words)


def test_all_that_a_job_says_of_its_servers_can_be_read():
    """`edl get -o yaml` of it, as its file has it."""
    assert job_object(replace(JOB, copies=2, is_ratio_measured=True))["spec"]["parameterServer"] == {
        "minReplicas": 1,
        "maxReplicas": 4,
        "replicas": 0,
        "trainersPerServer": "auto",
        "afterLoss": "Keep",
        "copies": 2,
    }


def test_what_no_plan_knows_of_a_job():
    """It has ended, when, and why; its ratio is measured."""
    assert job_facts_of(job_object(JOB)) == JobFacts()
    assert job_facts_of(job_object(replace(JOB, is_ratio_measured=True))).is_ratio_measured
    ended = replace(JOB, condition="Completed", ended_s=12.5, message="every sample was trained and committed")
    assert job_facts_of(job_object(ended)).ended == "Completed 12s ago: every sample was trained and committed"


def test_what_was_trained_again_is_told_of_all_masters():
    """Each counts anew; a job is set back by all of them."""
    told = job_object(replace(JOB, progress=replace(PROGRESS, reworked=8, reworked_earlier=160)))
    assert "Rolled back: 168 re-worked, 0 quarantined" in job_lines(told)


def test_a_server_that_is_leaving_is_still_there():
    """It serves until what it holds has been moved: wanted and present are told apart while a job shrinks."""
    job = job_object(replace(JOB, servers=2, servers_target=2, servers_leaving=1))
    heading, row = format_table([job], is_wide=False)
    assert row.split()[heading.split().index("SERVERS")] == "3/2"


def test_describe_says_when_servers_are_the_bottleneck():
    """With what more of them would give; a job that computes most of its time says nothing."""
    waits = job_lines(job_object(replace(JOB, progress=replace(PROGRESS, waiting_share=0.5))))
    assert "Hint:        trainers wait for servers 50% of their time; 2 in place of 1: at most +33%" in waits
    assert max(map(len, waits)) <= 100
    assert not any(line.startswith("Hint:") for line in job_lines(job_object(JOB)))


def test_a_job_without_servers_says_nothing_of_them():
    """No zeros that mean nothing."""
    bare = job_object(replace(JOB, servers=0, servers_target=0, servers_min=0, servers_max=0))
    assert not any(line.startswith("Servers:") for line in job_lines(bare))
    heading, row = format_table([bare], is_wide=False)
    assert row[heading.index("SERVERS")] == "-"


def test_every_help_fits_eighty_columns_and_shows_examples():
    """A newcomer copies a line from it."""
    for name, command in edl.commands.items():
        context = click.Context(command, info_name=f"edl {name}", terminal_width=80)
        text = command.get_help(context)
        assert max(map(len, text.splitlines())) <= 80, name
        assert name in {"version", "data"} or re.search(rf"^ .*edl {name}\b", text, re.MULTILINE), name


HEARD = MasterReport(progress=PROGRESS)


def saying(**words):
    return MasterReport(progress=replace(PROGRESS, **words))


@pytest.mark.parametrize(
    ("heard", "reason", "lines"),
    [
        (None, "NodeFit", []),
        (HEARD, "NodeFit", []),
        (MasterReport(progress=None), "NodeFit", ["Training:    NoAnswer: ", "Saving:      NoAnswer: "]),
        (saying(problem="no file"), "Problem", ["Training:    Problem: nothing is trained until this is over"]),
        (saying(checkpoint_problem="no room"), "CommitFails", ["Saving:      CommitFails: training goes on, "]),
        (
            saying(store_problem="etcd is away"),
            "StoreUnavailable",
            ["Saving:      StoreUnavailable: training goes on, "],
        ),
        (replace(HEARD, is_overdue=True), "Overdue", ["Saving:      Overdue: "]),
        (
            replace(HEARD, missing_answer=WhyNoAnswer.NOT_LEADING, since="for 20 s"),
            "NoLeader",
            ["Training:    NoLeader: its masters answer for 20 s, and none leads", "Saving:      NoLeader: "],
        ),
    ],
)
def test_a_run_tells_training_and_saving_apart_as_a_cluster_does(heard, reason, lines):
    """The words of `jobs.health`, in `edl describe` and in the column REASON (ADR 0173)."""
    found = job_object(replace(JOB, heard=heard))
    told = [line for line in job_lines(found) if line.startswith(("Training:", "Saving:"))]
    assert len(told) == len(lines)
    assert all(line.startswith(beginning) for line, beginning in zip(told, lines, strict=True)), told
    heading, row = format_table([found], is_wide=False)
    assert row[heading.index("REASON") :].split()[0] == reason
