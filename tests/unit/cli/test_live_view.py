"""The live view and the tables are pure: a snapshot in, a picture out."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from autoscaler.cli.local.foreground import RunOutput, _print_event
from autoscaler.cli.local.stop_request import StopRequest
from autoscaler.cli.output.live_view import draw
from autoscaler.clusters.local.machine.pod_logs import LOG_HEADING
from autoscaler.clusters.local.run_files.run_journal import RunEvent
from autoscaler.domain import Bottleneck, Decision, PodPhase, Reason, Resources, Role
from autoscaler.jobs.progress import JobProgress
from autoscaler.local_run.run_samples import sample_of
from autoscaler.local_run.run_snapshot import (
    DecisionLine,
    DeploymentLine,
    JobLine,
    NodeLine,
    PodLine,
    RunSnapshot,
)
from autoscaler.views.phrases import format_age
from master.api.master_status import JobPhase

REQUESTS = Resources(cpu_milli=1000, memory_bytes=1 << 29, extended=(("pods", 1),))


def pod(name, role, owner, phase=PodPhase.READY, cpu_milli=1000):
    return PodLine(
        name=name,
        role=role,
        owner=owner,
        ordinal=0,
        phase=phase,
        node="node-1",
        requests=replace(REQUESTS, cpu_milli=cpu_milli),
        pending_s=0.2,
        pid=77,
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
JOB = JobLine(
    name="digits",
    condition="Running",
    message="",
    min=2,
    max=8,
    now=4,
    target=2,
    servers=1,
    servers_target=2,
    servers_leaving=0,
    decision=DECISION,
    progress=PROGRESS,
)
PODS = (
    pod("digits-trainer-0", Role.TRAINER, "digits"),
    pod("digits-trainer-1", Role.TRAINER, "digits", PodPhase.TERMINATING),
    pod("digits-master-0", Role.MASTER, "digits", cpu_milli=500),
    pod("web-0", Role.EXTERNAL, "web"),
)
WEB = DeploymentLine(name="web", wanted=3, ready=1, pending=2, starting=0)
NODE = NodeLine(name="node-1", capacity=Resources(cpu_milli=4000, memory_bytes=8 << 30), is_open=True, pods=PODS)
SNAPSHOT = RunSnapshot(
    name="20260102-150405-digits",
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
    assert "4 -> 2" in text
    assert "room for web-3" in text


def test_a_job_whose_script_still_imports_is_starting():
    """A script that hangs in an import looks unlike one that trains."""
    for progress in (None, replace(PROGRESS, phase=JobPhase.STARTING, total=0)):
        assert "Starting" in drawn(replace(SNAPSHOT, jobs=(replace(JOB, progress=progress),)))
    assert "Starting" not in drawn(SNAPSHOT)


def test_the_cause_of_a_failure_is_not_cut_off():
    """What a failure says last is why; other events keep one line."""
    words = " ".join(f"word{number}" for number in range(20))
    event = RunEvent(number=1, t_s=1.0, kind="Failed", object="tj/digits", reason="CommitFails", message=words)
    assert "word19" in drawn(SNAPSHOT, [event], width=80)
    assert "word19" not in drawn(SNAPSHOT, [replace(event, kind="Job")], width=80)


def test_a_line_announces_no_log_that_it_does_not_show():
    """It ended in "the last lines of its log:", and nothing followed."""
    words = f"was killed by SIGKILL{LOG_HEADING}\n  | term 3 serves\nstarts again at once"
    event = RunEvent(number=1, t_s=1.0, kind="Exited", object="pod/digits-master", reason="Restarting", message=words)
    shown = drawn(SNAPSHOT, [event])
    assert "was killed by SIGKILL" in shown
    assert "its log" not in shown


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
    _print_event(HOSTILE, RunOutput.LINES, StopRequest())
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
