"""A few resizes, and everybody killed and paused while a move stands at a step (M1, M9): part of `make chaos-moves`."""

import random
import time

import pytest

from tests.chaos.chaos_run import etcd_members
from tests.chaos.moves.campaign import Campaign, shaped
from tests.chaos.moves.failpoints import Step
from tests.chaos.moves.fault_matrix import Blow, How, Victim
from tests.chaos.moves.job_kinds import JobKind
from tests.chaos.moves.processes import Shape
from tests.chaos.moves.resize_plans import Written
from tests.chaos.moves.resizes import left_by, sized


def kill(victim, step):
    return Blow(step=step, victim=victim, how=How.KILL)


def stop(victim, step):
    return Blow(step=step, victim=victim, how=How.STOP)


SCRIPT = (
    (sized(3), (kill(Victim.MASTER, Step.FLIP), stop(Victim.TRAINER, Step.FREEZE))),
    (sized(2), (stop(Victim.SOURCE, Step.FREEZE), stop(Victim.TARGET, Step.INSTALLED))),
    (sized(3), (kill(Victim.TARGET, Step.INSTALLED), stop(Victim.MASTER, Step.FORGET))),
    (left_by(1), (kill(Victim.TRAINER, Step.HANDOVER), kill(Victim.SOURCE, Step.FLIP))),
    (sized(1, by_signal=True), (kill(Victim.ETCD, Step.INTENT),)),
    (sized(4), (stop(Victim.ETCD, Step.ACTIVATE),)),
)
OF_COPIES = (
    (sized(3), (kill(Victim.OWNER, Step.PASS), stop(Victim.MASTER, Step.PROMOTE))),
    (sized(2), (stop(Victim.SOURCE, Step.WARM), kill(Victim.TRAINER, Step.CHANGED))),
    (left_by(1), (kill(Victim.BACKUP, Step.PASSED), kill(Victim.MASTER, Step.ALONE), kill(Victim.ETCD, Step.RECRUIT))),
    (sized(3), (kill(Victim.TARGET, Step.SENT), stop(Victim.BOTH, Step.BACKED))),
)
SHAPE = Shape(epochs=24, step_s=0.3, checkpoint_every_s=0.5, meet_budget_s=60.0)
NO_NEW_RESIZES_AFTER_S = 200.0


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "script"), [(JobKind.DENSE, SCRIPT), (JobKind.COPIES, OF_COPIES)], ids=["dense", "copies"]
)
async def test_whoever_dies_or_stops_at_a_step_of_a_move_loses_and_repeats_nothing(tmp_path, kind, script):
    """Source, target, master, trainer and etcd, killed and paused once each (rules 41 to 60).

    And owners and backups where buckets have two copies: a single loss does not raise the lineage (61, 62).
    """
    lines, plan = [], Written(script)
    async with etcd_members(tmp_path, 3, lines.append) as etcd:
        until_s = time.monotonic() + NO_NEW_RESIZES_AFTER_S
        campaign = Campaign(tmp_path, etcd, plan=plan, rng=random.Random(1), until_s=until_s, say=lines.append)
        await campaign.play("moves", shaped(SHAPE, kind))
    told = "\n".join(lines)
    assert campaign.report.problems == [], told
    assert campaign.report.resizes.total() >= len(script) // 3, told
    assert len(campaign.report.landed) >= 2 * len(plan.missed), told
    assert campaign.report.heads > 0, told
    assert kind.copies == 1 or campaign.report.shares[kind].made_good > 0, told
