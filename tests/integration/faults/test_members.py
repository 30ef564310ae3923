"""A killed, paused or drained member costs work and never a sample, and no other process is restarted for it (M1, M9).

Real processes of a whole run; the ledger (`tests.chaos.ledger`) says what each checkpoint really holds.
"""

import re
import signal

import pytest

from autoscaler.domain import Role
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from tests.chaos.chaos_run import ChaosJobShape, start_chaos_run
from tests.chaos.head_watch import HeadWatch
from tests.chaos.ledger import read_diaries
from tests.harness.process_state import is_process_dead, process_state
from tests.integration.faults.ledger_job import BUDGET_S, SHAPE, begin, finish, pids, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]


async def test_a_killed_server_rolls_back_and_restarts_no_trainer(chaos_run):
    """Lineage + 1, the same trainer processes, every sample once (rules 26 to 29, M9)."""
    before = await begin(chaos_run)
    watch = HeadWatch(chaos_run.checkpoint_uri("ledger"))
    async with watch.following():
        trainers, victim = pids(chaos_run, Role.TRAINER), chaos_run.pods("ledger", Role.SERVER)[0]
        other = {name: pid for name, pid in pids(chaos_run, Role.SERVER).items() if name != victim.name}
        assert chaos_run.kill(victim.name)
        after = await chaos_run.wait_for(
            "ledger", lambda s: s.lineage > before.lineage and s.positions.leased > 0, "the roll-back", BUDGET_S
        )
        assert after.lineage == before.lineage + 1
        assert pids(chaos_run, Role.TRAINER) == trainers
        assert {name: pid for name, pid in pids(chaos_run, Role.SERVER).items() if name in other} == other
        await finish(chaos_run, watch)


async def test_a_killed_master_costs_no_process_no_lease_and_no_lineage(chaos_run):
    """Trainers go on with the leases they hold, and the next master takes them over (rules 17, 18; M5, M9)."""
    before = await begin(chaos_run)
    watch = HeadWatch(chaos_run.checkpoint_uri("ledger"))
    async with watch.following():
        members = pids(chaos_run, Role.TRAINER) | pids(chaos_run, Role.SERVER)
        master = chaos_run.pods("ledger", Role.MASTER)[0]
        assert chaos_run.kill(master.name, signal.SIGKILL)
        after = await chaos_run.wait_for(
            "ledger",
            lambda s: s.term > before.term and sum(m.is_serving and m.leased > 0 for m in s.members) == SHAPE.trainers,
            "the take-over",
            BUDGET_S,
        )
        assert after.lineage == before.lineage
        assert after.failures == ()
        assert pids(chaos_run, Role.TRAINER) | pids(chaos_run, Role.SERVER) == members
        await finish(chaos_run, watch)


async def test_a_master_whose_store_is_lost_goes_on_from_the_last_manifest(tmp_path):
    """No etcd, so what the master knew dies with it; folder and servers' lineages say the rest (M8, rule 29)."""
    async with start_chaos_run(tmp_path, members=0) as chaos_run:
        before = await begin(chaos_run)
        watch = HeadWatch(chaos_run.checkpoint_uri("ledger"))
        async with watch.following():
            members = pids(chaos_run, Role.TRAINER) | pids(chaos_run, Role.SERVER)
            (master,) = chaos_run.pods("ledger", Role.MASTER)
            assert chaos_run.kill(master.name)
            after = await chaos_run.wait_for(
                "ledger", lambda s: s.lineage > before.lineage and s.positions.leased > 0, "it goes on", BUDGET_S
            )
            assert after.positions.committed >= before.positions.committed
            assert pids(chaos_run, Role.TRAINER) | pids(chaos_run, Role.SERVER) == members
            await finish(chaos_run, watch)


async def test_a_trainer_paused_past_its_lease_is_fenced_and_changes_nothing(chaos_run):
    """Others train what it held; its own gradient comes back as a zombie's and finds the positions done (M2)."""
    shape = ChaosJobShape(
        size=60,
        epochs=30,
        batch_size=4,
        step_s=0.4,
        most_trainers=2,
        buckets=16,
        checkpoint_every_s=0.5,
        lease_floor_s=1.0,
        leader_ttl_s=10,
        reconnect_s=10.0,
    )
    await begin(chaos_run, shape)
    watch = HeadWatch(chaos_run.checkpoint_uri("ledger"))
    async with watch.following():
        zombie = chaos_run.pods("ledger", Role.TRAINER)[0]
        has_reported = lambda s: any(m.name == zombie.name and m.samples_per_s > 0 for m in s.members)  # noqa: E731
        await chaos_run.wait_for("ledger", has_reported, "its speed is known, so that its lease is short", BUDGET_S)
        in_hand = await stopped_with_a_batch(chaos_run, zombie, watch)
        is_out = lambda s: zombie.name not in {member.name for member in s.members}  # noqa: E731
        await chaos_run.wait_for("ledger", is_out, "it is no member any more", BUDGET_S)
        assert chaos_run.kill(zombie.name, signal.SIGCONT)
        await until(lambda: diary(chaos_run, zombie)[-1].nonce != in_hand.nonce, "it is fenced and gets new work")
        assert not is_process_dead(zombie.pid)
        head = await finish(chaos_run, watch)
        assert in_hand.nonce not in head.tables["stamps"]
        assert head.manifest.lineage == 1


async def stopped_with_a_batch(chaos_run, zombie, watch):
    """The trainer stands still, others have trained what it had in hand; what it had noted of that.

    Where it had pushed its batch and noted no other yet, it goes on, and is stopped again.
    """
    while True:
        assert chaos_run.kill(zombie.name, signal.SIGSTOP)
        await until(lambda: process_state(zombie.pid) == "T", "it stands still")
        in_hand = diary(chaos_run, zombie)[-1]
        is_trained = lambda: watch.heads and in_hand.positions <= watch.heads[-1].manifest.data  # noqa: B023, E731
        await until(is_trained, "others have trained its batch")
        if in_hand.nonce not in watch.heads[-1].tables["stamps"]:
            return in_hand
        assert chaos_run.kill(zombie.name, signal.SIGCONT)
        await until(lambda: diary(chaos_run, zombie)[-1].nonce != in_hand.nonce, "it goes on")  # noqa: B023


def diary(chaos_run, pod):
    return [
        line for line in read_diaries(chaos_run.diaries("ledger")) if line.trainer.startswith(f"{pod.name}-{pod.pid}-")
    ]


async def test_a_drained_trainer_returns_its_rest_and_is_replaced(chaos_run):
    """SIGTERM: it finishes its batch, leaves by itself before its grace is over, and counts as no failure (M7)."""
    await begin(chaos_run)
    watch = HeadWatch(chaos_run.checkpoint_uri("ledger"))
    async with watch.following():
        leaver = chaos_run.pods("ledger", Role.TRAINER)[0]
        await chaos_run.drain(leaver.name)
        await until(lambda: is_process_dead(leaver.pid), "it leaves")
        await chaos_run.wait_for(
            "ledger", lambda s: sum(m.leased > 0 for m in s.members) == SHAPE.trainers, "it is replaced", BUDGET_S
        )
        head = await finish(chaos_run, watch)
        assert head.manifest.lineage == 1
        events = [event for event in chaos_run.events if event.object == f"pod/{leaver.name}"]
        assert [event.message for event in events if event.kind == "Exited"][0].startswith("exited with 0")  # noqa: RUF015
        assert "GraceOver" not in {event.reason for event in events}
        assert [event for event in chaos_run.events if event.reason == "TrainerFailed"] == []


@pytest.mark.parametrize(("role", "story"), [(Role.MASTER, "no answer"), (Role.SERVER, "not connected to its master")])
async def test_who_stands_still_is_started_again(chaos_run, role, story):
    """Nobody wakes it: its silence is noticed, it is killed with the reason told, and every sample counts once."""
    await begin(chaos_run)
    watch = HeadWatch(chaos_run.checkpoint_uri("ledger"))
    async with watch.following():
        still = chaos_run.pods("ledger", role)[0]
        assert chaos_run.kill(still.name, signal.SIGSTOP)
        await until(lambda: process_state(still.pid) == "T", "it stands still")
        await until(lambda: is_process_dead(still.pid), "it is killed")
        (told,) = [event for event in chaos_run.events if event.reason == "Unresponsive"]
        assert told.object == f"pod/{still.name}"
        assert int(re.search(rf"{story} for (\d+) s", told.message)[1]) >= SILENCE_LIMIT_S
        await finish(chaos_run, watch)
        assert [event for event in chaos_run.events if event.reason == "TrainerFailed"] == []
