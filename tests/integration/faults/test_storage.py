"""Where checkpoints and records are kept goes away and comes back: training goes on, commits wait (M6).

The folder is a small tmpfs of the test's own where mounting is allowed (root of a machine or of a container).
"""

import asyncio
import resource
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.domain import Role
from master.api.checkpoints.audit import try_head_hint
from master.api.checkpoints.checkpoint_files import read_manifest
from master.api.checkpoints.storage import open_storage
from master.api.master_status import JobPhase
from tests.chaos.head_watch import HeadWatch
from tests.harness.etcd_faults import pause_member, resume_member
from tests.harness.process_state import is_process_dead
from tests.integration.faults.ledger_job import BUDGET_S, JOB, SHAPE, begin, finish, pids, trained, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

OUTAGE_S = 30.0  # longer than any lease or window of these jobs


@pytest.fixture
def tmpfs(tmp_path):
    """A folder on a file system of its own, 2 MiB.  Skips where nothing may be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not allowed here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder):
    """No byte is left in it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1024))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def read_only(folder):
    """Refused as busy while a file there is being written: tried until none is."""
    for _ in range(1000):
        if subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True, check=False).returncode == 0:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the folder stays busy")
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@contextmanager
def limited(chaos_run):
    """No server may write a file longer than a page: EFBIG, as a quota gives."""
    servers = [pod.pid for pod in chaos_run.pods(JOB, Role.SERVER)]
    limits = [resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)) for pid in servers]
    try:
        yield
    finally:
        for pid, limit in zip(servers, limits, strict=True):
            with suppress(ProcessLookupError):  # it has been told to leave
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


async def test_servers_that_may_not_write_stop_commits_and_no_training(chaos_run):
    """As below, where nothing may be mounted."""
    await begin(chaos_run)
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        with limited(chaos_run):
            await goes_on_without_commits(chaos_run, "no space left")
        await commits_again(chaos_run)
        await finish(chaos_run, watch)


async def test_a_suspension_while_commits_fail_loses_what_no_checkpoint_has(chaos_run):
    """Servers that go cannot save either: people are told to leave such a job alone (ADR 0173, docs/runbook.md)."""
    await begin(chaos_run)
    with limited(chaos_run):
        before = await goes_on_without_commits(chaos_run, "no space left")
        await chaos_run.suspend(JOB, on=True)
        await until(lambda: not chaos_run.has_pods(JOB), "all pods have left")
    assert len(head_of(chaos_run).data) == before.positions.committed, "nothing new was saved"
    await chaos_run.suspend(JOB, on=False)
    after = await chaos_run.wait_for(JOB, lambda s: s.phase is JobPhase.TRAINING, "it goes on", BUDGET_S)
    assert after.lineage > before.lineage, "and what was trained since is trained again"


async def test_a_job_goes_on_in_another_folder_once_its_checkpoint_is_there(chaos_run, tmp_path):
    """Another checkpoint.uri alone stops the job: its head is in the folder before (M8, M11, docs/runbook.md)."""
    await begin(chaos_run)
    await chaos_run.suspend(JOB, on=True)
    await until(lambda: not chaos_run.has_pods(JOB), "all pods have left")
    held, other = Path(chaos_run.checkpoint_uri(JOB).removeprefix("file://")), tmp_path / "elsewhere"
    other.mkdir()
    await chaos_run.edit(JOB, {"checkpoint": {"uri": other.as_uri()}})
    await chaos_run.suspend(JOB, on=False)
    log = next(iter(await masters_log(chaos_run)))
    await until(lambda: "Restore the folder" in log.read_text(), "the master says what is missing")
    shutil.copytree(held, other, dirs_exist_ok=True)
    after = await chaos_run.wait_for(JOB, lambda s: s.phase is JobPhase.TRAINING, "it goes on", BUDGET_S)
    assert after.positions.committed > 0
    await finish(chaos_run, HeadWatch(str(other)))


async def masters_log(chaos_run):
    """Where the job's new master writes."""
    await until(lambda: chaos_run.pods(JOB, Role.MASTER), "a master stands")
    return [chaos_run.log_of(pod) for pod in chaos_run.pods(JOB, Role.MASTER)]


@pytest.mark.parametrize(("trouble", "told"), [(full, "no space left"), (read_only, "denies access")])
async def test_a_folder_that_takes_nothing_stops_commits_and_no_training(chaos_run, tmpfs, trouble, told):
    """The status says what is wrong with the folder; when that is over the next commit succeeds (M6)."""
    await begin(chaos_run, replace(SHAPE, checkpoint_uri=str(tmpfs)))
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        with trouble(tmpfs):
            status = await goes_on_without_commits(chaos_run, told)
            assert str(tmpfs) in status.checkpoint_problem
        await commits_again(chaos_run)
        await finish(chaos_run, watch)


async def test_servers_come_and_go_while_the_disk_is_full(chaos_run, tmpfs):
    """Each commit of a move's time fails; the model moves all the same, both ways, and nothing is lost (M6)."""
    await begin(chaos_run, replace(SHAPE, checkpoint_uri=str(tmpfs), most_servers=3))
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        with full(tmpfs):
            before = await goes_on_without_commits(chaos_run, "no space left")
            await is_resized(chaos_run, 3)
            after = await is_resized(chaos_run, 2)
            assert (after.lineage, after.positions.committed) == (before.lineage, before.positions.committed)
        await commits_again(chaos_run)
        await finish(chaos_run, watch)


def head_of(chaos_run):
    """The manifest of the job's last checkpoint."""
    storage = open_storage(chaos_run.checkpoint_uri(JOB))
    return read_manifest(storage, try_head_hint(storage))


async def is_resized(chaos_run, count):
    """So many servers hold the model, and no bucket is on its way; the status."""
    await chaos_run.pin_servers(JOB, count)
    settled = (count, count, 0, 0)
    return await chaos_run.wait_for(
        JOB, lambda s: (s.servers, s.servers_wanted, s.moving, s.waiting_to_move) == settled, "the resize", BUDGET_S
    )


async def goes_on_without_commits(chaos_run, told):
    """The user is told; the last status."""
    before = await chaos_run.wait_for(JOB, lambda s: told in s.checkpoint_problem, "the user is told", BUDGET_S)
    assert before.problem == "", "training goes on"
    during = await chaos_run.wait_for(JOB, lambda s: trained(s) > trained(before) + 40, "training goes on", BUDGET_S)
    assert during.positions.committed == before.positions.committed
    assert during.lineage == before.lineage
    return before


async def commits_again(chaos_run):
    """Nothing is the matter any more."""
    held = (await chaos_run.answer(JOB, BUDGET_S)).positions.committed
    after = await chaos_run.wait_for(JOB, lambda s: s.positions.committed > held, "commits go on", BUDGET_S)
    assert (after.problem, after.checkpoint_problem) == ("", "")


async def test_an_altered_checkpoint_file_is_refused_by_name_until_it_is_whole_again(chaos_run):
    """A lost server needs head's files: nothing is restored from an altered one, and the status names it (rule 22)."""
    await begin(chaos_run)
    victim = chaos_run.pods(JOB, Role.SERVER)[0]
    trainers = pids(chaos_run, Role.TRAINER)
    chaos_run.kill(victim.name)
    # Without it no checkpoint is completed, and it is started again by this thread, which waits: whichever checkpoint
    # is head, its files are broken before a new process can read them.
    while not is_process_dead(victim.pid):
        time.sleep(0.01)  # noqa: ASYNC251 - no turn of the loop in between
    good = {}
    for file in (chaos_run.root / "checkpoints" / JOB).glob("cut-*"):
        with suppress(FileNotFoundError):  # of a checkpoint that has just been retired
            good[file] = file.read_bytes()
            file.write_bytes(good[file][: len(good[file]) // 2])
    is_refused = lambda s: any(file.name in s.problem for file in good)  # noqa: E731
    refused = await chaos_run.wait_for(JOB, is_refused, "the file is refused", BUDGET_S)
    assert refused.phase is JobPhase.RESTORING
    assert refused.positions.leased == 0
    for file, content in good.items():
        file.write_bytes(content)
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        await chaos_run.wait_for(JOB, lambda s: s.phase is JobPhase.TRAINING, "it is whole again", BUDGET_S)
        assert pids(chaos_run, Role.TRAINER) == trainers
        await finish(chaos_run, watch)


async def test_training_goes_on_while_etcd_is_away_and_commits_wait(chaos_run):
    """All members stopped for longer than every lease: nothing is committed and nothing lost (M6)."""
    await begin(chaos_run)
    watch = HeadWatch(chaos_run.checkpoint_uri(JOB))
    async with watch.following():
        members = pids(chaos_run, Role.TRAINER) | pids(chaos_run, Role.SERVER) | pids(chaos_run, Role.MASTER)
        (etcd,) = chaos_run.etcd.members
        pause_member(etcd)
        try:
            away_at_s, before = time.monotonic(), await chaos_run.answer(JOB, BUDGET_S)
            during = await chaos_run.wait_for(JOB, lambda s: trained(s) > trained(before) + 60, "it goes on", BUDGET_S)
            await chaos_run.wait_for(JOB, lambda s: s.store_problem, "no commit is under way any more", BUDGET_S)
            held = head_of(chaos_run).id
            while time.monotonic() < away_at_s + OUTAGE_S:
                during = await chaos_run.status(JOB) or during
                await asyncio.sleep(0.2)
            assert head_of(chaos_run).id == held
        finally:
            resume_member(etcd)
        assert trained(during) > trained(before) + 60
        assert during.problem == "", "training goes on"
        assert "checkpoints wait: etcd" in during.store_problem, "the user was not told why checkpoints wait"
        after = await chaos_run.wait_for(
            JOB, lambda s: s.positions.committed > before.positions.committed, "commits go on", BUDGET_S
        )
        assert (after.problem, after.checkpoint_problem, after.store_problem) == ("", "", "")
        assert pids(chaos_run, Role.TRAINER) | pids(chaos_run, Role.SERVER) | pids(chaos_run, Role.MASTER) == members
        await finish(chaos_run, watch)


async def test_etcd_that_stands_still_is_told_before_any_write_waits_for_it(chaos_run):
    """A lease of 6 s and a write's budget of 5 s left one second for the words, if a write was due at all (ADR 0173).

    None is due here: the renewals tell.  And the words go once etcd answers, not with the next commit.
    """
    await chaos_run.submit(JOB, replace(SHAPE, leader_ttl_s=6, checkpoint_every_s=3600.0))
    await chaos_run.wait_for(JOB, lambda s: trained(s) > 40, "it trains", BUDGET_S)
    well = {"Progressing": "Training", "CheckpointsCurrent": "UpToDate"}
    await until(lambda: told_of(chaos_run) == well, "the conditions say so", BUDGET_S)
    (etcd,) = chaos_run.etcd.members
    pause_member(etcd)
    try:
        before = await chaos_run.wait_for(JOB, lambda s: s.store_problem, "the user is told", BUDGET_S)
        assert before.problem == ""
        await until(
            lambda: told_of(chaos_run)["CheckpointsCurrent"] == "StoreUnavailable", "the conditions say so", BUDGET_S
        )
        assert told_of(chaos_run)["Progressing"] == "Training"
        await chaos_run.wait_for(JOB, lambda s: trained(s) > trained(before) + 40, "training goes on", BUDGET_S)
    finally:
        resume_member(etcd)
    await until(lambda: told_of(chaos_run)["CheckpointsCurrent"] == "UpToDate", "it is over", BUDGET_S)
    assert (await chaos_run.answer(JOB, BUDGET_S)).positions.committed == 0, "no commit was needed for that"


def told_of(chaos_run):
    """The reasons of the two conditions."""
    status = chaos_run.local_run.plane.server.get(TRAINING_JOBS, "default", JOB).get("status", {})
    return {
        one["type"]: one["reason"]
        for one in status["conditions"]
        if one["type"] in {"Progressing", "CheckpointsCurrent"}
    }
