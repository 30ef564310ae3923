"""`parameterServer.copies: 2` on a run with everything real: killed servers cost a promotion each (ADR 0318).

Nobody goes back: the lineage stays 1, no position is done again, and every bucket's fingerprint is exact.
"""

import asyncio
import sys
import time

import pytest

from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.domain import Resources
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.manifests import parse_files
from autoscaler.manifests.conversion import make_virtual_node
from master.api.checkpoints.audit import read_checkpoint
from master.api.checkpoints.storage import open_storage
from tests.chaos.ledger import check_end, check_head, check_owners, read_head
from tests.harness.edl_command import PROGRAMS, edl

PROGRAM = PROGRAMS / "chaos_ledger.py"
DEADLINE_S = 150.0
BUCKETS = 64
FILE = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: paired}
spec:
  trainer:
    minReplicas: 2
    maxReplicas: 2
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: trainer
          command: [PYTHON, PROGRAM, --diaries, diaries, --haste, haste, --size, "400", --epochs, "20",
                    --batch-size, "8", --buckets, "COUNT", --step-s, "0.5"]
          resources: {requests: {cpu: 1, memory: 64Mi}}
  parameterServer:
    minReplicas: 2
    copies: 2
    template:
      spec:
        terminationGracePeriodSeconds: 20
        containers: [{name: server, resources: {requests: {cpu: 500m, memory: 64Mi}}}]
  master:
    template:
      spec:
        containers:
        - {name: master, env: [{name: EDL_BUCKETS, value: "COUNT"}], resources: {requests: {cpu: 250m, memory: 64Mi}}}
  checkpoint: {everySeconds: 1}
"""


def progress(run):
    record = run.jobs().get("paired")
    return None if record is None else record.progress


async def until(run, condition, what):
    """The first progress that fulfils it."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        told = progress(run)
        if told is not None and condition(told):
            return told
        pods = [(pod["metadata"]["name"], pod["status"]) for pod in run.plane.server.all(PODS)]
        assert time.monotonic() < deadline, f"{what} did not happen: {pods}; {told}"
        await asyncio.sleep(0.05)


def has_two_copies(told):
    """Both servers own buckets, and nothing is on its way."""
    return not told.single_copy_buckets and not told.moving and len([owned for _, owned in told.buckets if owned]) == 2


def losses(run):
    return [event.message for event in run.recorder.events if event.reason == "ServerLost"]


async def servers_line(run):
    shown = await asyncio.to_thread(edl, "describe", "tj/paired", run=run.folder.root)
    (line,) = [line for line in shown.splitlines() if line.startswith("Servers:")]
    return line


async def lose(run, name):
    """Kills it: the other one has taken over all that it owned, and then there are two copies of everything again."""
    other = {"paired-server-0": "paired-server-1", "paired-server-1": "paired-server-0"}[name]
    owned = dict(progress(run).buckets)[int(name[-1])]
    told_before = len(losses(run))
    assert run.kill(name)
    lost = await until(run, lambda p: dict(p.buckets_taken_over).get(other), f"{name}'s buckets on {other}")
    # one copy of all is a matter of tenths of a second, seldom seen
    assert dict(lost.buckets_taken_over) == {other: owned}
    told = f"{owned} buckets continue on {other}, which had their second copies: nothing is trained again"
    whole = await until(run, has_two_copies, "a second copy of everything")
    await until(run, lambda _: len(losses(run)) > told_before, "the event")
    assert losses(run)[told_before:] == [told]
    assert "; 2 copies of each bucket" in await servers_line(run)
    return whole


def check_counters(run):
    """Every position is in every bucket exactly once."""
    uri = str(run.folder.checkpoints / "paired")
    audit = read_checkpoint(uri)
    assert audit.is_sound
    head = read_head(open_storage(uri), audit.head, 0.0)
    assert [*check_owners(head), *check_head(head), *check_end(head)] == []
    assert head.manifest.lineage == 1


@pytest.mark.usefixtures("etcd_binary")
@pytest.mark.timeout(600)
async def test_one_server_after_the_other_is_killed_and_nothing_is_done_again(tmp_path):
    """The second loss finds the copies that were made anew after the first one."""
    (tmp_path / "diaries").mkdir()
    text = FILE.replace("PYTHON", sys.executable).replace("PROGRAM", str(PROGRAM)).replace("COUNT", str(BUCKETS))
    (tmp_path / "job.yaml").write_text(text)
    machine = make_virtual_node("node-1", Resources(cpu_milli=8000, memory_bytes=8 << 30))
    settings = RunSettings(name="paired", machines=(machine,), devices=((),), parent=tmp_path, working_dir=tmp_path)
    async with LocalRun(settings) as run:
        await run.submit(parse_files([tmp_path / "job.yaml"]))
        begun = await until(run, lambda p: p.committed and has_two_copies(p), "training with two copies")
        assert begun.copies == 2
        first = await lose(run, "paired-server-0")
        second = await lose(run, "paired-server-1")
        assert begun.done <= first.done <= second.done < second.total, "the job was over before"
        assert (second.lineage, second.reworked) == (1, 0), "nobody went back"
        (tmp_path / "haste").touch()
        await until(run, lambda p: p.is_complete and run.are_jobs_over(), "the end")
        check_counters(run)
        await run.stop()
