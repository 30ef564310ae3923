"""Steps are stopped by name: the values that the product logs are known, and an armed step stops who reaches it."""

import asyncio
import importlib.util
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from master.api.identities import BucketId, CutId, Incarnation, Lineage, MemberName, Route, ServerPlace, Term, Version
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.to_members import Activate, Cut, Forget, Freeze, Hold
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import Backups, BucketTable, ChangeTable, Intent
from master.job.domain.job_events import Persisted
from master.job.placement.owner_placement import NO_SERVER
from master.job.state import bucket_table
from tests.chaos.moves.failpoints import COPY_STEPS, HOOK, SENT_STEPS, Failpoints, Step
from tests.chaos.moves.fault_matrix import PREREQUISITES, FaultMatrix, FaultTarget
from tests.chaos.moves.job_kinds import ChaosJobKind
from tests.harness.process_state import process_state
from trainer_sdk.pserver.core.messages import BackupPush, CopyHead, Push
from trainer_sdk.pserver.core.server_events import ApplyLive, CopyArrived, FileWritten, SendCopy, WarmCopyRequested

G, V, CUT = Lineage(1), Version(0), CutId(term=Term(1), lineage=Lineage(1), sequence=1)
HERE, THERE = (
    ServerPlace(name=MemberName(f"s-{n}"), incarnation=Incarnation(f"i-{n}"), address=f"h:{n}", ordinal=n)
    for n in (0, 1)
)
HEAD = CopyHead(
    lineage=G,
    bucket=BucketId(0),
    version=V,
    target=THERE.incarnation,
    is_final=True,
    applied=EMPTY,
    skipped=EMPTY,
    digest="",
)
SENT = SendCopy(
    lineage=G,
    bucket=BucketId(0),
    version=V,
    target=THERE,
    is_final=True,
    is_full=True,
    applied=EMPTY,
    skipped=EMPTY,
)
INTENT = Intent(
    bucket=BucketId(0),
    lineage=G,
    version=V,
    source=bucket_table.key_of(HERE),
    target=bucket_table.key_of(THERE),
    reason="",
)
STILL = BucketTable(route=Route(revision=1, lineage=G, servers=(HERE, THERE), owner=(0,), version=(V,)))
MOVING = replace(STILL, intents=(INTENT,))
ALL = PositionSet.of(0)
ONE_COPY = replace(STILL, backups=Backups(backup=(NO_SERVER,), owner_since=(V,), backup_since=(V,)))
WANTING = replace(ONE_COPY, intents=(INTENT,), backups=replace(ONE_COPY.backups, wanted=ALL))
PAIRED = bucket_table.flipped(WANTING, INTENT)
FILE = FileRecord(name="f", size_bytes=0, digest="", lineage=G, marks=())

VALUES = (
    (Step.INTENT, Persisted(write=ChangeTable(old=STILL, new=MOVING))),
    (Step.FLIP, Persisted(write=ChangeTable(old=MOVING, new=bucket_table.flipped(MOVING, INTENT)))),
    (Step.UNDO, Persisted(write=ChangeTable(old=MOVING, new=bucket_table.undone(MOVING, INTENT)))),
    (Step.AHEAD, WarmCopyRequested(lineage=G, bucket=BucketId(0), version=V, target=THERE)),
    (Step.CHANGED, (ApplyLive(buckets=ALL),)),
    (Step.SENT, replace(SENT, is_final=False)),
    (Step.WARM, CopyArrived(head=replace(HEAD, is_final=False))),
    (Step.FREEZE, Freeze(lineage=G, bucket=BucketId(0), version=V, target=THERE)),
    (Step.HANDOVER, SENT),
    (Step.INSTALLED, CopyArrived(head=HEAD)),
    (Step.ACTIVATE, Activate(lineage=G, buckets=ALL, version=V, since=V)),
    (Step.FORGET, Forget(lineage=G, buckets=ALL, version=V)),
    (Step.HOLD, Hold(cut=CUT)),
    (Step.CUT, Cut(cut=CUT, data=EMPTY)),
    (Step.WRITTEN, FileWritten(cut=CUT, file=FILE)),
    (Step.PASS, BackupPush(to=THERE, targets=())),
    (Step.PASSED, Push(lineage=G, positions=EMPTY, targets=())),
    (Step.RECRUIT, Persisted(write=ChangeTable(old=ONE_COPY, new=WANTING))),
    (Step.BACKED, Persisted(write=ChangeTable(old=WANTING, new=PAIRED))),
    (Step.UNDO, Persisted(write=ChangeTable(old=WANTING, new=bucket_table.undone(WANTING, INTENT)))),
    (Step.PROMOTE, Persisted(write=ChangeTable(old=PAIRED, new=bucket_table.promoted(PAIRED, 0)))),
    (Step.ALONE, Persisted(write=ChangeTable(old=PAIRED, new=bucket_table.left_alone(PAIRED, 0)))),
)

REACHES_A_STEP = """
import logging
class Freeze: bucket = 0
logging.getLogger("trainer_sdk.pserver.shell").debug("%s", Freeze())
"""


@pytest.fixture
def hook():
    spec = importlib.util.spec_from_file_location("hook", HOOK / "sitecustomize.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("step", "value"), VALUES, ids=[step for step, _ in VALUES])
def test_what_the_product_logs_is_known_by_name(hook, step, value):
    if step is Step.CHANGED:
        assert hook.steps_of(value) == [], "the rows of no bucket have set out"
        hook.steps_of(WarmCopyRequested(lineage=G, bucket=BucketId(0), version=V, target=THERE))
    assert hook.steps_of(value) == [step]


def test_every_step_has_a_value():
    assert [step for step in Step if step not in {known for known, _ in VALUES}] == []


def _started(failpoints):
    environment = {"PYTHONPATH": str(HOOK), "CHAOS_FAILPOINTS": str(failpoints.folder)}
    return subprocess.Popen([sys.executable, "-c", REACHES_A_STEP], env=environment)


async def test_one_process_stops_at_an_armed_step_and_goes_on_when_let_go(tmp_path):
    failpoints = Failpoints(tmp_path / "failpoints")
    failpoints.arm(Step.FREEZE)
    processes = [_started(failpoints), _started(failpoints)]
    stopped = await failpoints.wait_reached(Step.FREEZE, budget_s=120.0, give_up=lambda: False)
    other = next(process for process in processes if process.pid != stopped.pid)
    assert await asyncio.to_thread(other.wait, 120) == 0
    assert process_state(stopped.pid) == "T"
    failpoints.release(stopped)
    assert [await asyncio.to_thread(process.wait, 120) for process in processes] == [0, 0]


async def test_a_step_that_nobody_reaches_is_given_up_and_not_armed_any_more(tmp_path):
    failpoints = Failpoints(tmp_path / "failpoints")
    failpoints.arm(Step.UNDO)
    assert await failpoints.wait_reached(Step.UNDO, budget_s=0.0, give_up=lambda: False) is None
    failpoints.arm(Step.HOLD)
    assert await asyncio.to_thread(_started(failpoints).wait, 120) == 0


def test_the_deck_deals_one_blow_a_step_and_what_undoes_beside_an_undo():
    deck = FaultMatrix(random.Random(1), SENT_STEPS)
    hands = [deck.draw(4, SENT_STEPS) for _ in range(50)]
    assert all(len({fault.step for fault in hand}) == len(hand) for hand in hands)
    undone = [hand for hand in hands if any(fault.step is Step.UNDO for fault in hand)]
    assert undone
    assert all(any(fault in PREREQUISITES[Step.UNDO] for fault in hand) for hand in undone)


def test_what_promotes_is_dealt_with_a_promotion_and_pairs_are_struck_where_there_are_copies():
    deck = FaultMatrix(random.Random(1), Step)
    hands = [deck.draw(4, ChaosJobKind.COPIES.steps) for _ in range(100)]
    lost = [hand for hand in hands if {Step.PROMOTE, Step.ALONE} & {fault.step for fault in hand}]
    assert lost
    assert all(any(fault in PREREQUISITES[Step.PROMOTE] for fault in hand) for hand in lost)
    of_pairs = {FaultTarget.OWNER, FaultTarget.BACKUP, FaultTarget.BOTH}
    found = {fault.target for hand in hands for fault in hand if fault.step in COPY_STEPS}
    assert found == of_pairs | {FaultTarget.MASTER, FaultTarget.TRAINER, FaultTarget.ETCD}


def test_a_job_is_struck_only_where_it_can_be_met_and_the_rest_waits_for_another():
    deck = FaultMatrix(random.Random(1), Step)
    dense = [fault for _ in range(20) for fault in deck.draw(4, ChaosJobKind.DENSE.steps)]
    assert {fault.step for fault in dense} <= set(SENT_STEPS)
    assert Step.WARM in {fault.step for _ in range(10) for fault in deck.draw(4, ChaosJobKind.ROWS.steps)}
