"""Members of a group under a real master: joins, drains, losses, stops; every record counted once."""

import signal

import pytest

from autoscaler.jobs.progress import progress_of
from autoscaler.jobs.standstill import observe_standstill
from master.api.checkpoints.audit import read_checkpoint
from master.api.group_shares import step_of, step_positions
from master.api.master_status import JobPhase
from master.api.positions import EMPTY, PositionSet
from master.job.domain.job_config import JobConfig
from tests.harness.group_members import BUDGET_S, trainers
from tests.harness.master_process import JOB, wait_for_leader
from tests.harness.waiting import wait_for_async
from tests.programs.group_counter import DATASET
from trainer_sdk.record_order import RecordOrder

POISON = 54  # a position of the second epoch
pytestmark = pytest.mark.chaos


def stands_still(status):
    return observe_standstill(None, progress_of(status), 0.0) is not None


async def test_joiner_and_leaver_disturb_nobody(group):
    """Rules 79 to 83: planned changes lose no step, and the replica goes over to the joiner (M10)."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        members.add()
        joined = await members.wait_trained(3, above=before.generation)
        members.processes[0].send_signal(signal.SIGTERM)
        (left,) = await members.finish(0)
        assert left["reason"] == "drained"
        assert left["redone"] == 0
        after = await members.wait_trained(2, above=joined.generation)
        assert after.generation == joined.generation + 1 == before.generation + 2
        await members.check_exact(1, 2)


async def test_kill_in_the_middle_of_a_step_loses_that_step_alone(group):
    """Rules 73 to 76: survivors abort, regroup, and do the same step again, the only work lost (M10)."""
    async with group() as members:
        members.add(3)
        before = await members.wait_trained(3)
        members.processes[1].kill()
        after = await members.wait_trained(2, above=before.generation)
        assert after.generation == before.generation + 1
        await members.check_exact(0, 2)


async def test_member_that_evaluates_between_two_steps_is_waited_for(group):
    """Rule 74: it holds the others back, but not in a step, and nobody is disturbed."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        (group.folder / "evaluate").touch()
        await members.wait_for("the evaluation", lambda _: not (group.folder / "evaluate").exists())
        after = await members.wait_trained(2)
        assert after.generation == before.generation
        await members.check_exact(0, 1)


async def test_joiner_that_compiles_in_its_second_step_stays(group):
    """ADR 0257: in the first one it takes the state and has no records, so that one compiles nothing."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        (group.folder / "compiles-2").touch()
        members.add()
        after = await members.wait_trained(3, above=before.generation)
        assert after.generation == before.generation + 1
        assert (await members.check_exact(0, 1, 2))[2]["redone"] == 0


async def test_stopped_member_is_left_behind_and_returns(group):
    """Rules 74, 92: nobody waits for the stopped one, which takes the others' state when it is back."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        members.processes[1].send_signal(signal.SIGSTOP)
        alone = await members.wait_trained(1, above=before.generation)
        members.processes[1].send_signal(signal.SIGCONT)
        await members.wait_trained(2, above=alone.generation)
        await members.check_exact(0, 1)


async def test_script_that_hangs_is_left_behind_for_good(group):
    """Rule 75: its process lives and answers, and no generation waits for its script; people are told."""
    async with group() as members:
        members.add(3)
        before = await members.wait_trained(3)
        (group.folder / "hang-1").touch()
        after = await members.wait_trained(2, above=before.generation)
        assert after.generation == before.generation + 1
        told = await members.wait_for("the problem", lambda now: bool(now.trainers_problem))
        assert told.trainers_problem.startswith("trainer-1 is in its script's own code")
        assert told.generation == after.generation
        await members.check_exact(0, 2)
        assert members.processes[1].poll() is None


async def test_member_that_hangs_in_a_restore_says_so(group):
    """Rule 75: its thread has asked for a step, so it was held for one that waits for the others, in any generation."""

    def phase_of(ordinal, status):
        return next((one.group_phase for one in status.members if one.ordinal == ordinal), "")

    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        (group.folder / "restores-2").touch()
        members.add()
        await members.wait_for("the restore", lambda now: phase_of(2, now) == "restore")
        members.processes[1].kill()
        await members.wait_for("the sync", lambda now: (phase_of(0, now), phase_of(2, now)) == ("sync", "restore"))
        (group.folder / "restores-2").unlink()
        await members.wait_trained(2, above=before.generation)
        await members.check_exact(0, 2)


async def test_script_that_comes_back_joins_again(group):
    """Rules 75, 92: it was slow, and is listed once it asks for a step."""
    async with group() as members:
        members.add(3)
        before = await members.wait_trained(3)
        (group.folder / "hang-1").touch()
        after = await members.wait_trained(2, above=before.generation)
        (group.folder / "hang-1").unlink()
        back = await members.wait_trained(3, above=after.generation)
        assert back.trainers_problem == ""
        await members.check_exact(0, 1, 2)


async def test_all_lost_go_on_from_the_head(group):
    """Rules 78, 90: no survivor is no special case; the head's file says what it contains.

    Meanwhile the master's answers show that the job stands still (ADR 0261).
    """
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        await members.wait_committed()
        for process in members.processes:
            process.kill()
        await members.wait_for("a standstill", stands_still)
        members.add(2)
        assert not stands_still(await members.wait_trained(2, above=before.generation))
        await members.check_exact(2, 3)


async def test_checkpoint_that_cannot_be_read_for_a_while_is_read_again(group):
    """ADR 0189: as servers do.  Each trainer failed at once, as many as the job's backoffLimit in one moment."""
    async with group() as members:
        members.add(2)
        before = await members.wait_trained(2)
        await members.wait_committed()
        for process in members.processes:
            process.kill()
        await members.wait_for("a standstill", stands_still)
        files = list((group.folder / "checkpoints").glob("replica-*.safetensors"))
        for file in files:
            file.rename(file.with_suffix(".away"))
        members.add(2)
        logs = [group.folder / f"{ordinal}.log" for ordinal in (2, 3)]
        await members.wait_for("the retry", lambda _: any("is read again" in log.read_text() for log in logs))
        for file in files:
            file.with_suffix(".away").rename(file)
        after = await members.wait_trained(2, above=before.generation)
        assert after.failures == ()
        await members.check_exact(2, 3)


async def test_master_that_is_followed_disturbs_nobody_and_goes_on_with_changes(group, etcd):
    """Rule 91: the next master reads the record, hears the rest from members, and plans and breaks as before."""
    async with group(EDL_ETCD_ENDPOINTS=",".join(etcd.endpoints)) as members:
        members.add(2)
        before = await members.wait_trained(2)
        await members.wait_committed()
        await members.master.kill()
        await members.master.start()
        await wait_for_leader(members.master)
        after = await members.wait_trained(2)
        assert after.term > before.term
        assert after.generation == before.generation
        members.add()
        joined = await members.wait_trained(3, above=after.generation)
        members.processes[0].kill()
        await members.wait_trained(2, above=joined.generation)
        await members.check_exact(1, 2)


async def test_drain_to_the_last_waits_for_a_checkpoint_and_new_members_go_on_from_it(group):
    """Rule 83: nobody leaves with what it alone holds, and the copy is asked for when it wants to leave."""
    async with group(EDL_CHECKPOINT_EVERY_S="600") as members:
        members.add(2)
        before = await members.wait_trained(2)
        members.processes[0].send_signal(signal.SIGTERM)
        alone = await members.wait_trained(1, above=before.generation)
        members.processes[1].send_signal(signal.SIGTERM)
        left = await members.finish(0, 1)
        assert [result["reason"] for result in left] == ["drained", "drained"]
        assert read_checkpoint(members.master.checkpoints).head.step >= alone.group_step
        members.add(2)
        await members.wait_trained(2, above=alone.generation)
        await members.check_exact(2, 3)


async def test_poison_record_is_left_out_alone(group):
    """M4 and rule 94: who trains it dies until it is found by halving; nothing else is skipped, and few are lost."""
    (group.folder / "poison").write_text(str(POISON))
    async with group() as members:
        members.add(3)
        found = await members.wait_for("a quarantine", lambda now: now.quarantine != EMPTY, replaces=True)
        assert found.quarantine == PositionSet.of(POISON)
        halvings = DATASET.batch_size.bit_length()
        assert len(found.failures) <= JobConfig(servers=0).quarantine_after + 2 * halvings, found.failures
        await members.wait_for("all three train", lambda now: trainers(now) == 3, replaces=True)
        skipped = [int(record) for record in RecordOrder(DATASET).records(found.quarantine)]
        await members.check_exact(0, 1, 2, skipped=skipped)


async def test_poison_record_of_a_lone_trainer_is_left_out_however_quick_its_steps_are(group):
    """M4: many steps fit between two reports; the master hears of the one that raised.  Its whole step is skipped."""
    late = 35 * DATASET.size + 10
    for name, text in (("poison", str(late)), ("raises", ""), ("hurry", "")):
        (group.folder / name).write_text(text)
    async with group() as members:
        members.add(1)
        found = await members.wait_for("a quarantine", lambda now: now.quarantine != EMPTY, replaces=True)
        assert found.quarantine == step_positions(DATASET, step_of(DATASET, late))
        assert len(found.failures) == JobConfig(servers=0).quarantine_after
        skipped = [int(record) for record in RecordOrder(DATASET).records(found.quarantine)]
        await members.check_exact(0, skipped=skipped)


async def test_final_hook_outlives_the_member_and_the_master_that_began_it(group, etcd):
    """Rule 96: FINAL to one member until it confirms, also by the next master; nobody hears END before."""
    (group.folder / "hook").touch()
    (group.folder / "hurry").touch()
    async with group(EDL_ETCD_ENDPOINTS=",".join(etcd.endpoints)) as members:
        members.add(2)
        await wait_for_async("a second saver", lambda: len(members.hooked()) == 2, budget_s=BUDGET_S)
        first, second = members.hooked()
        assert members.processes[first].wait() == -signal.SIGKILL
        assert first != second
        await members.master.kill()
        await members.master.start()
        await members.wait_for("its phase", lambda now: now.phase is JobPhase.SAVING)
        members.add()
        await members.wait_for("the newcomer", lambda now: len(now.members) == 2)
        assert [members.processes[one].poll() for one in (second, 2)] == [None, None]
        (members.folder / "saved").touch()
        await members.finish(second, 2)
        assert members.hooked() == [first, second]


async def test_second_session_of_a_script_with_a_trained_job_is_refused(group):
    """Its loop was empty, and its model the first one's, without a word; another job's session is another matter."""
    for name in ("again", "hurry"):
        (group.folder / name).touch()
    async with group() as members:
        members.add(2)
        await members.finish(0, 1)
        for ordinal in range(2):
            told = (group.folder / f"again-{ordinal}").read_text()
            assert f"a second session with job {JOB}, whose training is over" in told
            assert "give both models to one replicate(session, ...), or start a job for each" in told
