"""Parameter servers come and go while trainers push: real processes, a ledger, and nobody notices (rules 37 to 60).

In the ledger every counter is how often a record's gradient was applied, so at the end it is the number of epochs.  The
lineage stays 1 throughout: nothing was rolled back, no bucket was lost.
"""

import asyncio
import signal
import time

import numpy as np
import pytest

from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from autoscaler.jobs.progress import WhyNoAnswer
from master.api.checkpoints.audit import read_checkpoint
from master.api.identities import Lineage, MemberRole, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from master.job.placement.owner_placement import Weight, classes
from tests.harness.job_processes import BUDGET_S, running
from tests.harness.master_process import JOB
from tests.harness.master_status import get_status
from trainer_sdk.pserver.__main__ import EXIT_OWNING
from trainer_sdk.pserver.tables.bucket_load import REPORT_EVERY_S, BucketLoadMeter
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model, SparseGradient

SIZE, BATCH = 6000, 20
BUCKETS = 256
ALL = PositionSet.span(0, BUCKETS)


def status_of(job):
    """On a busy machine a master may be slow to answer."""
    return asyncio.run(get_status(job.address, JOB, limit_s=60.0))


def ask_for_servers(job, count):
    """Again until it is answered, as clusters do."""

    async def ask():
        async with MasterConnections() as masters:
            return await masters.set_servers(MasterEndpoint(job=JOB, address=job.address, token="", tls=None), count)

    def answered():
        answer = asyncio.run(ask())
        return None if isinstance(answer, WhyNoAnswer) else answer

    answer = job.wait_for(answered, "an answer to the number of servers")
    assert answer.count == count, answer


def weights_of(*, is_dense):
    """What every bucket weighs once every record has been trained."""
    kind = "dense" if is_dense else "sparse"
    counter = OptimiserSpec(kind="sgd", learning_rate=-1.0)
    table = TableSpec(
        name="ledger", shape=(SIZE,) if is_dense else (SIZE, 1), kind=kind, dtype="int64", optimiser=counter
    )
    model = Model(Layout.of((table,), BUCKETS), ALL)
    if not is_dense:
        rows = SparseGradient(table=0, ids=np.arange(SIZE), rows=np.ones((SIZE, 1), np.int64))
        model.apply(ALL, [rows], ALL)
    return [Weight(size_bytes=size) for size in BucketLoadMeter(model, 0.0).first_report(Lineage(1), ALL).sizes_bytes]


def wait_until_even(job, ordinals, *, is_dense=True):
    """All of these own buckets, and of each class of weight as many or one more; nobody else does; nothing moves."""
    odd = len(classes(BUCKETS, len(ordinals), weights_of(is_dense=is_dense)))

    def is_even():
        status = status_of(job)
        held = {m.ordinal: m.buckets for m in status.members if m.role is MemberRole.SERVER and m.buckets}
        return set(held) == set(ordinals) and max(held.values()) - min(held.values()) <= odd and not status.moving

    job.wait_for(is_even, f"buckets on the servers {sorted(ordinals)}")


def wait_until_weighed(job):
    """Every row has been trained, and every server has said since then what its buckets weigh."""
    job.wait_for(lambda: status_of(job).positions.committed >= SIZE, "the first epoch")
    said_s = time.monotonic() + REPORT_EVERY_S + 5.0
    job.wait_for(lambda: time.monotonic() > said_s, "reports of all servers")


def hurry(job):
    """Once it is there no step takes time any more: what a test does comes before the end of training."""
    return job.folder / "hurry"


def paused(job, pause_s):
    return ("--pause-s", pause_s, "--pause-until", hurry(job))


def check_ledger(job, outs, epochs, *, lineage=1):
    """Counters exact, checkpoint sound and complete; nothing was rolled back unless a later lineage is expected."""
    counts = [np.load(out)["counts"] for out in outs if out.exists()]
    assert counts, "no trainer saved the counters"
    for found in counts:
        assert (found == epochs).all(), f"counters from {found.min()} to {found.max()}"
    audit = read_checkpoint(str(job.checkpoints))
    assert audit.is_sound
    assert audit.head.is_complete
    assert audit.head.lineage == lineage


@pytest.mark.parametrize(("is_dense", "epochs", "pause_s"), [(True, 3, 0.2), (False, 10, 0.1)], ids=["dense", "sparse"])
def test_a_third_server_joins_and_the_first_leaves_and_every_counter_is_exact(tmp_path, is_dense, epochs, pause_s):
    """Grow from 2 to 3, drain server 0, take its successor, shrink to 2; commits go on throughout (M1, 49, 58)."""
    with running(tmp_path, servers=2, EDL_MAX_SERVERS="3", EDL_CHECKPOINT_EVERY_S="0.5", EDL_GRACE_S="40") as job:
        outs = [job.folder / f"out-{number}.npz" for number in range(2)]
        arguments = ["--size", SIZE, "--epochs", epochs, "--batch-size", BATCH, *paused(job, pause_s)]
        arguments += ["--dense"] if is_dense else []
        trainers = [job.trainer(n, "ledger.py", *arguments, "--out", out) for n, out in enumerate(outs)]
        job.wait_for(lambda: status_of(job).positions.committed > 0, "the first commit")
        if not is_dense:
            wait_until_weighed(job)
        first = job.processes[1]

        ask_for_servers(job, 3)
        job.server(2)
        wait_until_even(job, {0, 1, 2}, is_dense=is_dense)

        first.send_signal(signal.SIGTERM)
        assert job.wait_for_exit(first) == 0
        assert "with no buckets" in job.log("server-0")
        wait_until_even(job, {1, 2}, is_dense=is_dense)

        job.server(0)
        wait_until_even(job, {0, 1, 2}, is_dense=is_dense)
        before = status_of(job).positions.committed
        job.wait_for(lambda: status_of(job).positions.committed > before, "a commit of three servers")

        ask_for_servers(job, 2)
        wait_until_even(job, {0, 1}, is_dense=is_dense)
        hurry(job).touch()
        assert all(job.wait_for_exit(trainer, 2 * BUDGET_S) == 0 for trainer in trainers)
        check_ledger(job, outs, epochs)


def test_buckets_of_a_killed_server_that_is_not_wanted_come_back_on_those_that_stay(tmp_path):
    """A checkpoint of three servers is restored onto two; the trainers keep their processes (56, M9)."""
    epochs = 2
    with running(tmp_path, servers=3, EDL_MAX_SERVERS="3", EDL_CHECKPOINT_EVERY_S="0.5", EDL_GRACE_S="40") as job:
        out = job.folder / "out.npz"
        arguments = ["--size", SIZE, "--epochs", epochs, "--batch-size", BATCH, *paused(job, 0.2), "--dense"]
        trainer = job.trainer(0, "ledger.py", *arguments, "--out", out)
        job.wait_for(lambda: status_of(job).positions.committed > 0, "the first commit")

        job.processes[3].kill()
        ask_for_servers(job, 2)
        wait_until_even(job, {0, 1})
        hurry(job).touch()
        assert job.wait_for_exit(trainer) == 0
        check_ledger(job, [out], epochs, lineage=2)


def test_a_server_that_nobody_can_empty_ends_within_its_grace(tmp_path):
    """The only server is received SIGTERM: it does not outstay its grace, and its successor brings the model back."""
    with running(tmp_path, servers=1, EDL_CHECKPOINT_EVERY_S="0.5", EDL_GRACE_S="4") as job:
        out = job.folder / "out.npz"
        arguments = ["--size", SIZE, "--epochs", 1, "--batch-size", BATCH, *paused(job, 0.3), "--dense"]
        trainer = job.trainer(0, "ledger.py", *arguments, "--out", out)
        job.wait_for(lambda: status_of(job).positions.committed > 0, "the first commit")
        only = job.processes[1]
        only.send_signal(signal.SIGTERM)
        assert job.wait_for_exit(only) == 0
        assert "received SIGTERM: staying up to 3.0 s" in job.log("server-0")
        job.server(0)
        job.wait_for(lambda: status_of(job).lineage == 2, "the model to come back")
        hurry(job).touch()
        assert job.wait_for_exit(trainer) == 0
        check_ledger(job, [out], 1, lineage=2)


def test_a_server_whose_master_is_away_stays_when_told_to_go_and_its_exit_code_says_that_it_owned(tmp_path):
    """Another master may come and move its buckets; told again, it ends, and the cluster side hears of the loss."""
    with running(tmp_path, servers=1, EDL_CHECKPOINT_EVERY_S="0.5", EDL_GRACE_S="60") as job:
        arguments = ["--size", SIZE, "--epochs", 1, "--batch-size", BATCH, *paused(job, 0.3), "--dense"]
        job.trainer(0, "ledger.py", *arguments)
        job.wait_for(lambda: status_of(job).positions.committed > 0, "the first commit")
        master, server = job.processes[:2]
        master.kill()
        job.wait_for_line("server-0", "the stream to the master is broken")
        server.send_signal(signal.SIGTERM)
        job.wait_for_line("server-0", "received SIGTERM")
        time.sleep(1.0)
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        assert job.wait_for_exit(server) == EXIT_OWNING
