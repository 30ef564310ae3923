"""Jobs on the local cluster with real processes: what a crash, an exit, a limit and an order to leave mean."""

import asyncio
import resource
import sys
from contextlib import contextmanager

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.domain import AdmitGang, Cause, CreatePod, DeletePod, JobState, PodPhase, Role, Tier
from autoscaler.jobs.lifecycle import JobEnding, LifeStage
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from autoscaler.jobs.server_count import EXIT_OWNING
from master.api.master_status import JobPhase
from master.api.messages.to_members import Refused
from master.api.servers_answer import ServersAnswer
from tests.integration.clusters.local.local_cluster import job, nodes, running, template, wait_until


def seat(ordinal, role=Role.TRAINER, node="node-1"):
    return CreatePod(job="digits", role=role, ordinal=ordinal, tier=Tier.CORE, node=node, cause=Cause.START)


async def start(cluster, what, trainers=1):
    cluster.submit(what, priority=0)
    seats = [seat(0, Role.MASTER), *(seat(n) for n in range(trainers))]
    seats += [seat(0, Role.SERVER)] if what.server is not None else []
    await cluster.apply(AdmitGang(job="digits", pods=tuple(seats)))


def record(cluster):
    return cluster.jobs.records["digits"]


def events(cluster, reason):
    return [e for e in cluster.recorder.events if e.reason == reason]


async def test_a_trainer_that_raises_is_told_with_its_last_words_and_what_comes_next(tmp_path):
    """Job, trainer, last lines of its log, and the outlook; never a silent retry."""
    crash = template(sys.executable, "-c", "print('epoch 0'); raise ValueError('labels are missing')")
    async with running(tmp_path) as cluster:
        await start(cluster, job(trainer=crash))
        await wait_until(cluster, lambda: events(cluster, "TrainerFailed"), "the failure")
        (told,) = events(cluster, "TrainerFailed")
        assert told.object == "tj/digits"
        assert "digits-trainer-0 exited with 1" in told.message
        assert "ValueError: labels are missing" in told.message
        assert "failure 1 of 3" in told.message
        assert "a new trainer starts at once" in told.message


async def test_failures_in_a_row_fail_the_job_and_stop_its_pods(tmp_path):
    """`backoffLimit`; trainers go first, the master last."""
    crash = template(sys.executable, "-c", "raise SystemExit(3)")
    async with running(tmp_path) as cluster:
        await start(cluster, job(trainer=crash, server=template(), backoff_limit=2))
        await wait_until(cluster, lambda: record(cluster).life.failures == 1)
        await cluster.apply(seat(1))
        await wait_until(cluster, lambda: record(cluster).life.stage is LifeStage.OVER, "the job's end")
        assert record(cluster).life.ending is JobEnding.FAILED
        assert "2 trainer failures in a row" in record(cluster).life.message
        gone = [e.object for e in events(cluster, "Gone")]
        assert gone.index("pod/digits-server-0") < gone.index("pod/digits-master-0")
        assert not cluster.table.job_pods("digits")


async def test_exit_0_before_the_end_is_a_failure(tmp_path):
    """A script that just ends would otherwise be started for ever."""
    async with running(tmp_path) as cluster:
        await start(cluster, job(trainer=template("true")))
        await wait_until(cluster, lambda: events(cluster, "TrainerFailed"))
        assert "data is left to train" in events(cluster, "TrainerFailed")[0].message


async def test_a_drained_trainer_is_no_failure(tmp_path):
    """It was asked to leave."""
    async with running(tmp_path) as cluster:
        await start(cluster, job())
        await wait_until(cluster, lambda: cluster.table.pods["digits-trainer-0"].phase is PodPhase.READY)
        cluster.leave("digits-trainer-0", why="test")
        await wait_until(cluster, lambda: "digits-trainer-0" not in cluster.table.pods)
        assert record(cluster).life.failures == 0
        assert record(cluster).life.state is JobState.ACTIVE


@pytest.mark.parametrize("role", [Role.MASTER, Role.SERVER])
async def test_masters_and_servers_restart_in_place(tmp_path, role):
    """At once the first time; the pod keeps its node and its name."""
    async with running(tmp_path) as cluster:
        await start(cluster, job(server=template()))
        name = f"digits-{role}-0"
        await wait_until(cluster, lambda: cluster.table.pods[name].pid is not None)
        before = cluster.table.pods[name]
        assert cluster.kill(name)
        await wait_until(cluster, lambda: cluster.table.pods[name].pid not in {None, before.pid}, "the restart")
        assert cluster.table.pods[name].node == before.node
        assert cluster.table.pods[name].starts == before.starts + 1


async def test_a_server_takes_no_number_beside_those_of_its_job(tmp_path):
    """Its master would refuse it for ever; the planner asks again when the one that is leaving has gone."""
    async with running(tmp_path) as cluster:
        await start(cluster, job(server=template()))
        await wait_until(cluster, lambda: cluster.table.pods["digits-server-0"].pid is not None)
        cluster.leave("digits-server-0", why="test")
        outcome = await cluster.apply(seat(1, Role.SERVER))
        assert outcome.result is WriteResult.REFUSED
        assert outcome.message == ("job digits has no server 1: its 1 are numbered from 0; still leaving: 0")
        await wait_until(cluster, lambda: "digits-server-0" not in cluster.table.pods, "its end")
        assert (await cluster.apply(seat(0, Role.SERVER))).result is WriteResult.DONE


def deletion(ordinal):
    return DeletePod(
        pod=f"digits-server-{ordinal}",
        job="digits",
        role=Role.SERVER,
        node="node-1",
        cause=Cause.RATIO,
        grace_s=5.0,
    )


async def test_servers_come_and_go_and_the_master_is_told_how_many(tmp_path):
    """Until it holds; a server that was told to leave is no failure, whatever it exits with."""
    told = []

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=told[-1] if told else 1)

    async def set_servers(_, count):
        told.append(count)
        return ServersAnswer(count=count, least=1, most=2, replaces="2" if count == 1 else "")

    async with running(tmp_path, look_at=look_at, set_servers=set_servers) as cluster:
        await start(cluster, job(server=template(), most_servers=2))
        assert (await cluster.apply(seat(1, Role.SERVER))).result is WriteResult.DONE
        assert (await cluster.apply(seat(2, Role.SERVER))).result is WriteResult.REFUSED
        await wait_until(cluster, lambda: told == [2], "the growth")
        await wait_until(cluster, lambda: cluster.table.pods["digits-server-1"].phase is PodPhase.READY)
        assert (await cluster.apply(deletion(1))).result is WriteResult.DONE
        await wait_until(cluster, lambda: "digits-server-1" not in cluster.table.pods, "its end")
        await wait_until(cluster, lambda: told == [2, 1], "the shrink")
        assert record(cluster).life.failures == 0
        assert not events(cluster, "Restarting")
        said = [e.message.removeprefix("the model is to be held by ") for e in events(cluster, "ServersSet")]
        assert said == ["2 servers", "1 server, in place of 2"]


@pytest.mark.parametrize(("code", "story"), [(EXIT_OWNING, "comes from the last checkpoint"), (7, "before it")])
async def test_a_server_that_left_with_a_part_of_the_model_is_told(tmp_path, code, story):
    """By its exit code; what becomes of its job is the master's business."""
    obedient = template("sh", "-c", f"trap 'exit {code}' TERM; echo up; while :; do sleep 0.1; done", grace_s=60.0)
    async with running(tmp_path) as cluster:
        await start(cluster, job(server=obedient))
        log = cluster.recorder.folder.log_of("digits-server-0")
        await wait_until(cluster, lambda: log.exists() and "up" in log.read_text(), "the trap")
        cluster.leave("digits-server-0", why="test")
        await wait_until(cluster, lambda: events(cluster, "ServerLost"), "the word of it")
        (lost,) = events(cluster, "ServerLost")
        assert (lost.object, story in lost.message) == ("tj/digits", True)
        assert record(cluster).life.failures == 0


async def test_a_server_that_had_no_time_to_commit_before_its_job_was_suspended_is_told(tmp_path):
    """What it had is trained again once the job is resumed."""
    obedient = template(
        "sh", "-c", f"trap 'exit {EXIT_OWNING}' TERM; echo up; while :; do sleep 0.1; done", grace_s=60.0
    )
    async with running(tmp_path) as cluster:
        await start(cluster, job(server=obedient))
        log = cluster.recorder.folder.log_of("digits-server-0")
        await wait_until(cluster, lambda: log.exists() and "up" in log.read_text(), "the trap")
        cluster.suspend("digits", on=True)
        await wait_until(cluster, lambda: events(cluster, "ServerLost"), "the word of it")


async def test_a_number_that_holds_is_told_though_its_answer_came_too_late(tmp_path):
    """A busy master writes it and answers after the deadline: the user hears of it all the same, once."""
    told = []

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=told[-1] if told else 1)

    async def set_servers(_, count):
        told.append(count)
        return WhyNoAnswer.SILENT if len(told) == 1 else ServersAnswer(count=count, least=1, most=2)

    async with running(tmp_path, look_at=look_at, set_servers=set_servers) as cluster:
        await start(cluster, job(server=template(), most_servers=2))
        assert (await cluster.apply(seat(1, Role.SERVER))).result is WriteResult.DONE
        await wait_until(cluster, lambda: events(cluster, "ServersSet"), "the word of it")
        assert told == [2, 2]
        (said,) = events(cluster, "ServersSet")
        assert said.message == "the model is to be held by 2 servers"


async def test_a_server_that_had_given_everything_away_has_lost_nothing_however_it_ended(tmp_path):
    """Its master says how much it owned; one that leaves gets no more."""

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=1, lineage=1, buckets=((0, 0),))

    slow = template("sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done", grace_s=60.0)
    async with running(tmp_path, look_at=look_at) as cluster:
        await start(cluster, job(server=slow))
        log = cluster.recorder.folder.log_of("digits-server-0")
        await wait_until(cluster, lambda: log.exists() and "up" in log.read_text(), "the trap")
        await wait_until(cluster, lambda: record(cluster).progress is not None, "the master's word")
        cluster.leave("digits-server-0", why="test")
        await wait_until(cluster, lambda: "digits-server-0" not in cluster.table.pods, "its end")
        assert not events(cluster, "ServerLost")


async def test_a_server_killed_with_the_only_copy_is_told_with_what_follows(tmp_path):
    """It starts again at once, and without its memory."""

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=1, lineage=1, buckets=((0, 12),))

    async with running(tmp_path, look_at=look_at) as cluster:
        await start(cluster, job(server=template()))
        await wait_until(cluster, lambda: record(cluster).progress is not None, "the master's word")
        await wait_until(cluster, lambda: cluster.table.pods["digits-server-0"].pid is not None)
        assert cluster.kill("digits-server-0")
        await wait_until(cluster, lambda: events(cluster, "ServerLost"), "the word of it")
        (lost,) = events(cluster, "ServerLost")
        followed = "12 buckets that nobody else has: the job goes back to its last checkpoint"
        assert (lost.object, lost.message) == ("tj/digits", f"digits-server-0 has ended with {followed}")
        assert events(cluster, "Restarting")


async def test_place_of_a_drained_server_is_taken_at_once_under_another_number(tmp_path):
    """The model goes from one to the other; a job that has not begun waits, for its master begins with the first."""
    lineage, told = [0], []

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=told[-1] if told else 1, lineage=lineage[0])

    async def set_servers(_, count):
        told.append(count)
        return ServersAnswer(count=count, least=1, most=2)

    stubborn = template("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done", grace_s=60.0)
    async with running(tmp_path, look_at=look_at, set_servers=set_servers) as cluster:
        await start(cluster, job(server=stubborn, most_servers=2))
        log = cluster.recorder.folder.log_of("digits-server-0")
        await wait_until(cluster, lambda: log.exists() and "deaf" in log.read_text(), "the trap")
        cluster.leave("digits-server-0", why="test")
        refused = await cluster.apply(seat(1, Role.SERVER))
        assert (refused.result, "begins with its first" in refused.message) == (WriteResult.REFUSED, True)
        lineage[0] = 1
        await wait_until(
            cluster, lambda: record(cluster).progress and record(cluster).progress.lineage, "the beginning"
        )
        assert (await cluster.apply(seat(1, Role.SERVER))).result is WriteResult.DONE
        await wait_until(cluster, lambda: told == [2], "the new number")


async def test_number_that_the_master_refuses_is_told_once(tmp_path):
    """With its field and reason; the master is asked on, for its successor may see it otherwise."""
    told = []

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=1)

    async def set_servers(_, count):
        told.append(count)
        return ServersAnswer(count=1, least=1, most=1, refused=Refused(field="count", message="is at most 1"))

    async with running(tmp_path, look_at=look_at, set_servers=set_servers) as cluster:
        await start(cluster, job(server=template(), most_servers=2))
        await cluster.apply(seat(1, Role.SERVER))
        await wait_until(cluster, lambda: len(told) > 2, "the third question")
        (refused,) = events(cluster, "ServersRefused")
        assert refused.message == "2 servers are refused: count is at most 1"


async def test_master_that_does_not_listen_is_told_again(tmp_path):
    """It leads no more, or has not begun: the number is said until one of its successors knows it."""
    told = []

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=2 if len(told) > 2 else 1)

    async def set_servers(_, count):
        told.append(count)
        return WhyNoAnswer.NOT_LEADING

    async with running(tmp_path, look_at=look_at, set_servers=set_servers) as cluster:
        await start(cluster, job(server=template(), most_servers=2))
        await cluster.apply(seat(1, Role.SERVER))
        await wait_until(cluster, lambda: record(cluster).progress and record(cluster).progress.servers_wanted == 2)
        assert told == [2, 2, 2]
        assert not events(cluster, "ServersSet")


async def test_servers_of_a_job_that_stops_are_not_taken_from_its_master(tmp_path):
    """They all leave: nothing is moved to those that leave last."""
    told = []

    async def look_at(_):
        return JobProgress(phase=JobPhase.TRAINING, term=1, servers_wanted=2)

    async def set_servers(_, count):
        told.append(count)
        return WhyNoAnswer.SILENT

    async with running(tmp_path, look_at=look_at, set_servers=set_servers) as cluster:
        await start(cluster, job(server=template(), most_servers=2))
        await cluster.apply(seat(1, Role.SERVER))
        await wait_until(cluster, lambda: record(cluster).progress is not None)
        for number in range(2):
            cluster.leave(f"digits-server-{number}", why="the run is stopping")
        await cluster.jobs.refresh_progress("digits")
        assert told == []
        cluster.delete_job("digits")
        await wait_until(cluster, lambda: "digits" not in cluster.jobs.records, "the job's end")
        assert told == []


async def test_a_complete_job_ends_in_order_and_says_so(tmp_path):
    """When the master says END, trainers leave by themselves, then the rest is stopped."""
    now = {"phase": JobPhase.TRAINING}

    async def look_at(_):
        return JobProgress(phase=now["phase"], total=10, done=5)

    async with running(tmp_path, look_at=look_at) as cluster:
        await start(
            cluster, job(trainer=template("sh", "-c", "while [ ! -e end ]; do sleep 0.05; done"), server=template())
        )
        await wait_until(cluster, lambda: cluster.table.pods["digits-master-0"].phase is PodPhase.READY)
        now["phase"] = JobPhase.COMPLETE
        await wait_until(cluster, lambda: record(cluster).life.stage is LifeStage.FINISHING)
        assert len(cluster.table.job_pods("digits")) == 3
        (tmp_path / "end").touch()
        await wait_until(cluster, lambda: record(cluster).life.stage is LifeStage.OVER, "the job's end")
        assert record(cluster).life.ending is JobEnding.COMPLETED


async def test_a_trainer_that_ends_while_another_saves_has_not_failed(tmp_path):
    """It was told the end before its job is complete, and said to have left data untrained."""
    now, asked = {"phase": JobPhase.SAVING}, []

    async def look_at(_):
        asked.append(now["phase"])
        return JobProgress(phase=now["phase"], total=10, done=10, committed=10)

    async with running(tmp_path, look_at=look_at) as cluster:
        await start(cluster, job(trainer=template("true"), backoff_limit=1))
        await wait_until(cluster, lambda: any(e.object == "pod/digits-trainer-0" for e in events(cluster, "Gone")))
        so_far = len(asked)
        await wait_until(cluster, lambda: len(asked) > so_far + 2, "its judgement")
        assert record(cluster).life.ending is None
        now["phase"] = JobPhase.COMPLETE
        await wait_until(cluster, lambda: record(cluster).life.stage is LifeStage.OVER, "the job's end")
        assert (record(cluster).life.ending, record(cluster).life.failures) == (JobEnding.COMPLETED, 0)


async def test_a_deleted_job_leaves_nothing(tmp_path):
    """Neither pods nor a record; its name is free again."""
    async with running(tmp_path) as cluster:
        await start(cluster, job(server=template()), trainers=2)
        cluster.delete_job("digits")
        await wait_until(cluster, lambda: "digits" not in cluster.jobs.records, "the job's end")
        assert not cluster.table.pods
        cluster.submit(job(), priority=0)


async def test_a_job_deleted_while_its_trainer_is_judged_harms_nobody(tmp_path):
    """Its master is asked why the trainer ended; the job may be gone before the answer."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def look_at(_):
        asked.set()
        await answer.wait()
        return WhyNoAnswer.SILENT

    async with running(tmp_path, look_at=look_at) as cluster:
        await start(cluster, job(trainer=template("false")))
        await wait_until(cluster, lambda: asked.is_set() and not cluster.table.job_pods("digits", Role.TRAINER))
        cluster.delete_job("digits")
        await wait_until(cluster, lambda: "digits" not in cluster.jobs.records, "the job's end")
        answer.set()
        for _ in range(10):  # turns of the loop, in which the judgement is spoken
            await asyncio.sleep(0)


async def test_a_job_past_its_deadline_fails(tmp_path):
    """activeDeadlineSeconds."""
    async with running(tmp_path) as cluster:
        await start(cluster, job(active_deadline_s=0.5))
        await wait_until(cluster, lambda: record(cluster).life.ending is JobEnding.FAILED)
        assert "activeDeadlineSeconds" in record(cluster).life.message


async def test_pods_are_told_who_they_are(tmp_path):
    """The environment, version 1; GPUs are each trainer's alone."""
    show = template("sh", "-c", "env; echo that is all; sleep 100", gpu_count=1)
    async with running(tmp_path, on=nodes(1, gpus=(4, 5))) as cluster:
        await start(cluster, job(trainer=show), trainers=2)
        logs = [cluster.recorder.folder.log_of(f"digits-trainer-{n}") for n in range(2)]
        await wait_until(cluster, lambda: all(log.exists() and "that is all" in log.read_text() for log in logs))
        told = [dict(line.split("=", 1) for line in log.read_text().splitlines() if "=" in line) for log in logs]
        assert {t["CUDA_VISIBLE_DEVICES"] for t in told} == {"4", "5"}
        assert [t["EDL_NAME"] for t in told] == ["digits-trainer-0", "digits-trainer-1"]
        assert {t["EDL_ENV_VERSION"] for t in told} == {"1"}
        assert told[0]["EDL_MASTER"] == told[1]["EDL_MASTER"]
        assert told[0]["EDL_ROLE"] == "trainer"
        assert told[0]["EDL_TIER"] == "core"


async def test_a_command_that_does_not_exist_is_told_with_its_name(tmp_path):
    """As a failure like any other."""
    async with running(tmp_path) as cluster:
        await start(cluster, job(trainer=template("no-such-program"), backoff_limit=1))
        await wait_until(cluster, lambda: record(cluster).life.ending is JobEnding.FAILED)
        assert "no-such-program" in record(cluster).life.message


@contextmanager
def no_room(cluster):
    """Nothing can be started: what owns the pods' processes gets no descriptor, as on a machine that others fill."""
    supervisor = cluster.runtime.processes.pid
    before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)


def without_room(cluster):
    return {event.object for event in events(cluster, "NoRoom")}


async def started(cluster):
    """A job with a master, a server and a trainer, all of which run."""
    await start(cluster, job(server=template(), backoff_limit=1))
    await wait_until(cluster, lambda: all(pod.pid for pod in cluster.table.pods.values()), "the start")


async def test_machine_that_starts_no_process_for_a_while_fails_no_job(tmp_path):
    """Another user's fork bomb of some seconds was six failures of a trainer in a row, and the end of every job."""
    async with running(tmp_path) as cluster:
        await started(cluster)
        with no_room(cluster):
            await cluster.apply(seat(1))
            for name in ("digits-server-0", "digits-master-0"):
                assert cluster.kill(name)
            wanted = {"pod/digits-trainer-1", "pod/digits-server-0", "pod/digits-master-0"}
            await wait_until(cluster, lambda: without_room(cluster) == wanted, "the refusals")
        await wait_until(cluster, lambda: all(pod.pid for pod in cluster.table.pods.values()), "the starts")
        assert len(cluster.table.pods) == 4
        assert record(cluster).life.state is JobState.ACTIVE
        assert record(cluster).life.failures == 0


async def test_pod_that_waits_for_room_on_its_machine_may_leave(tmp_path):
    """It has no process, so it is gone at once."""
    async with running(tmp_path) as cluster:
        await started(cluster)
        with no_room(cluster):
            await cluster.apply(seat(1))
            await wait_until(cluster, lambda: "pod/digits-trainer-1" in without_room(cluster), "the refusal")
            cluster.leave("digits-trainer-1", why="test")
            await wait_until(cluster, lambda: "digits-trainer-1" not in cluster.table.pods, "its end")
        assert record(cluster).life.failures == 0
