"""A few resizes, and everybody killed and paused while a move stands at a step (M1, M9): part of `make chaos-moves`."""

import random
import time

import pytest

from tests.chaos.chaos_run import start_etcd_members
from tests.chaos.moves.campaign import MovesCampaign, shaped
from tests.chaos.moves.failpoints import Step
from tests.chaos.moves.fault_matrix import FaultTarget, StepFault
from tests.chaos.moves.job_kinds import ChaosJobKind
from tests.chaos.moves.processes import MovesJobShape
from tests.chaos.moves.resize_plans import FixedPlan
from tests.chaos.moves.resizes import replace_server, resize_to
from tests.harness.faults import FaultKind


def kill(victim, step):
    return StepFault(step=step, target=victim, kind=FaultKind.KILL)


def stop(victim, step):
    return StepFault(step=step, target=victim, kind=FaultKind.STOP)


SCRIPT = (
    (resize_to(3), (kill(FaultTarget.MASTER, Step.FLIP), stop(FaultTarget.TRAINER, Step.FREEZE))),
    (resize_to(2), (stop(FaultTarget.SOURCE, Step.FREEZE), stop(FaultTarget.TARGET, Step.INSTALLED))),
    (resize_to(3), (kill(FaultTarget.TARGET, Step.INSTALLED), stop(FaultTarget.MASTER, Step.FORGET))),
    (replace_server(1), (kill(FaultTarget.TRAINER, Step.HANDOVER), kill(FaultTarget.SOURCE, Step.FLIP))),
    (resize_to(1, by_signal=True), (kill(FaultTarget.ETCD, Step.INTENT),)),
    (resize_to(4), (stop(FaultTarget.ETCD, Step.ACTIVATE),)),
)
OF_COPIES = (
    (resize_to(3), (kill(FaultTarget.OWNER, Step.PASS), stop(FaultTarget.MASTER, Step.PROMOTE))),
    (resize_to(2), (stop(FaultTarget.SOURCE, Step.WARM), kill(FaultTarget.TRAINER, Step.CHANGED))),
    (
        replace_server(1),
        (
            kill(FaultTarget.BACKUP, Step.PASSED),
            kill(FaultTarget.MASTER, Step.ALONE),
            kill(FaultTarget.ETCD, Step.RECRUIT),
        ),
    ),
    (resize_to(3), (kill(FaultTarget.TARGET, Step.SENT), stop(FaultTarget.BOTH, Step.BACKED))),
)
SHAPE = MovesJobShape(epochs=24, step_s=0.3, checkpoint_every_s=0.5, meet_budget_s=60.0)
NO_NEW_RESIZES_AFTER_S = 200.0


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "script"), [(ChaosJobKind.DENSE, SCRIPT), (ChaosJobKind.COPIES, OF_COPIES)], ids=["dense", "copies"]
)
async def test_whoever_dies_or_stops_at_a_step_of_a_move_loses_and_repeats_nothing(tmp_path, kind, script):
    """Source, target, master, trainer and etcd, killed and paused once each (rules 41 to 60).

    And owners and backups where buckets have two copies: a single loss does not raise the lineage (61, 62).
    """
    lines = []
    async with start_etcd_members(tmp_path, 3, lines.append) as etcd:
        plan, until_s = FixedPlan(script), time.monotonic() + NO_NEW_RESIZES_AFTER_S
        campaign = MovesCampaign(tmp_path, etcd, plan=plan, rng=random.Random(1), until_s=until_s, say=lines.append)
        await campaign.run_job("moves", shaped(SHAPE, kind))
    told = "\n".join(lines)
    assert campaign.report.problems == [], told
    assert campaign.report.resizes.total() >= len(script) // 3, told
    assert has_struck(campaign, plan), told
    assert campaign.report.heads > 0, told
    assert kind.copies == 1 or campaign.report.shares[kind].made_good > 0, told


def has_struck(campaign, plan):
    """Most of those who were to die or stop have done so at their step."""
    return len(campaign.report.landed) >= 2 * len(plan.missed)
