"""A checkpoint that cannot be read is never taken for one that is not there: `edl run`, a script, a master (M11)."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from master.api.checkpoints.audit import read_checkpoint, try_head_hint
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.resume import FRESH
from master.api.master_status import JobPhase
from tests.harness.edl_command import EDL, wait_until
from tests.harness.master_process import JOB, MasterProcess, Sharder, leads, running, wait_for_condition
from tests.harness.master_status import get_status
from tests.integration.master.test_faults import DATASET, until_committed

ROOT = Path(__file__).resolve().parents[3]
JOB_YAML = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: squares}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 1
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
          - name: trainer
            command: [python, ROOT/examples/plain_sharding.py]
            args: [--records, "2000", --epochs, "2"]
            resources: {requests: {cpu: "1", memory: 256Mi}}
  checkpoint: {everySeconds: 0.3, uri: FOLDER/checkpoints}
"""


def run(folder, *options, job=JOB_YAML):
    """`edl run` of the job, to its end: exit code and all that it says."""
    (folder / "job.yaml").write_text(job.replace("ROOT", str(ROOT)).replace("FOLDER", str(folder)))
    argv = [EDL, "run", "job.yaml", "--no-view", "--no-etcd", *options]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def contents(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".edl-")
    }


def truncate(folder):
    """The manifest that HEAD names ends too early."""
    head = try_head_hint(LocalStorage(folder))
    (manifest,) = folder.glob(f"manifest-{head}.json")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    return manifest.name


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """The folder of a run that has ended: what it said and what the folder holds agree."""
    folder = tmp_path_factory.mktemp("trained")
    code, said = run(folder)
    assert code == 0, said
    assert read_checkpoint(str(folder / "checkpoints")).head.is_complete
    return folder


@pytest.fixture
def trained(trained_once, tmp_path):
    """A copy of its checkpoints, for the test to harm."""
    shutil.copytree(trained_once / "checkpoints", tmp_path / "checkpoints")
    return tmp_path


def test_a_run_beside_a_manifest_that_is_cut_short_is_refused_and_says_the_ways_on(trained):
    """Nothing starts and nothing is changed; asked to begin anew it sets everything aside and deletes nothing."""
    folder = trained / "checkpoints"
    name = truncate(folder)
    before = contents(folder)
    code, said = run(trained)
    assert code == 4, said
    assert name in said
    assert "--start-fresh" in said
    assert contents(folder) == before
    code, said = run(trained, "--start-fresh")
    assert code == 0, said
    (aside,) = (folder / "aside").iterdir()
    assert contents(aside) == before
    assert read_checkpoint(str(folder)).head.is_complete
    assert run(trained)[0] == 0, "what began anew is not begun anew again"


def test_from_of_a_checkpoint_that_is_not_there_is_refused(trained):
    """The command line names the job and a manifest; a wrong one changes nothing."""
    before = contents(trained / "checkpoints")
    code, said = run(trained, "--from", "squares=000009-1")
    assert (code, "manifest 000009-1: was requested" in said) == (4, True), said
    assert run(trained, "--from", "other=1")[0] == 2
    assert run(trained, "--from", "1", "--start-fresh")[0] == 2
    assert contents(trained / "checkpoints") == before


def script(folder, **environment):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    variables |= {"EDL_CHECKPOINT_URI": str(folder), "PYTHONPATH": str(ROOT)} | environment
    argv = [sys.executable, str(ROOT / "examples" / "plain_sharding.py"), "--records", "2000", "--epochs", "2"]
    done = subprocess.run(
        argv, cwd=folder.parent, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_script_that_runs_alone_is_refused_as_a_run_is(trained):
    """The same words, and its own way to answer."""
    folder = trained / "checkpoints"
    name = truncate(folder)
    before = contents(folder)
    code, said = script(folder)
    assert code != 0
    assert f"CheckpointError: checkpoint file {name}: cannot be read" in said
    assert contents(folder) == before
    code, said = script(folder, EDL_CHECKPOINT_START=FRESH)
    assert code == 0, said
    assert read_checkpoint(str(folder)).head.is_complete


async def test_a_master_whose_store_is_empty_tells_that_the_job_has_failed(tmp_path):
    """As with a store: told, tried again for a while, then failed; the exit code says that somebody has to act."""
    master = MasterProcess(tmp_path, EDL_CHECKPOINT_EVERY_S="0.2", EDL_UNREADABLE_S="2")
    async with running(master):
        work = Sharder(DATASET)
        await work.run(master.address)
        await until_committed(master, more_than=0)
        await master.stop()
        name = truncate(tmp_path / "checkpoints")
        before = contents(tmp_path / "checkpoints")
        await master.start()

        async def has_failed():
            if not await leads(master):
                return False
            status = await get_status(master.address, JOB)
            assert name in status.problem
            return status.phase is JobPhase.FAILED

        await wait_for_condition(has_failed)
        assert await master.wait() == 2
        assert contents(tmp_path / "checkpoints") == before


async def test_head_stands_in_the_folder_before_anybody_hears_of_the_end(tmp_path):
    """The folder is what outlives the store: what is said to be committed is in it (M6, M11)."""
    slow = "import time, master.durable.checkpoint_folder as f; w = f.write_head_hint\n"
    slow += "f.write_head_hint = lambda *a: (time.sleep(0.7), w(*a))\n"
    (tmp_path / "sitecustomize.py").write_text(slow)
    master = MasterProcess(tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}", EDL_CHECKPOINT_EVERY_S="0.2")
    async with running(master):
        await Sharder(DATASET).run(master.address)
        assert read_checkpoint(master.checkpoints).head.is_complete
        head = try_head_hint(LocalStorage(tmp_path / "checkpoints"))
        assert head == (await get_status(master.address, JOB)).head


SERVED = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: served}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 1
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
          - {name: trainer, command: [python, FOLDER/script.py], resources: {requests: {cpu: "1", memory: 256Mi}}}
  parameterServer:
    minReplicas: 1
    maxReplicas: 1
    template: {spec: {containers: [{name: server, resources: {requests: {cpu: 500m, memory: 256Mi}}}]}}
  master:
    template:
      spec:
        containers:
          - name: master
            env: [{name: EDL_UNREADABLE_S, value: "1"}]
            resources: {requests: {cpu: 100m, memory: 64Mi}}
  checkpoint: {everySeconds: 0.3, uri: FOLDER/checkpoints}
"""
SCRIPT = """
import pathlib, time
import numpy as np
import trainer_sdk as edl

with edl.open() as session:
    model = session.tables({"w": edl.dense((16, 4))}, optimiser=edl.sgd(0.1))
    for batch in session.dataset("s", size=200, epochs=5000, batch_size=10):
        model.pull()
        model.push({"w": np.ones((16, 4), np.float32)})
        batch.done()
        if not pathlib.Path("haste").exists():
            time.sleep(0.1)
"""


def until_head(folder):
    wait_until((folder / "checkpoints" / "HEAD").exists, "the first checkpoint")
    wait_until(lambda: any((folder / "checkpoints").glob("retired-*")), "the second one")


def alter(folder):
    """A data file of the last checkpoint, of the right length."""
    head = read_checkpoint(str(folder)).head
    file = folder / head.files[0].name
    content = bytearray(file.read_bytes())
    content[60] ^= 1
    file.write_bytes(content)
    return file.name


@pytest.mark.parametrize("harm", [truncate, alter])
@pytest.mark.parametrize("falls_back", [False, True])
def test_who_waits_for_a_job_whose_checkpoint_was_damaged_hears_its_end(tmp_path, harm, falls_back):
    """Damaged between suspend and resume: `edl wait` ends with the file's name, or the job falls back and ends well."""
    epochs = "epochs=100" if falls_back else "epochs=5000"
    (tmp_path / "script.py").write_text(SCRIPT.replace("epochs=5000", epochs))
    (tmp_path / "job.yaml").write_text(SERVED.replace("FOLDER", str(tmp_path)))
    argv = [EDL, "run", "job.yaml", "--no-view", "--stay", *(["--fall-back"] if falls_back else [])]
    first = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def edl(*words):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
        done = subprocess.run(
            [EDL, *words], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    try:
        until_head(tmp_path)
        assert edl("suspend", "tj/served")[0] == 0
        assert edl("wait", "--for=condition=Suspended", "tj/served", "--timeout", "100s")[0] == 0
        name = harm(tmp_path / "checkpoints")
        (tmp_path / "haste").touch()  # it ends when it is resumed, and no sooner
        assert edl("resume", "tj/served")[0] == 0
        code, said = edl("wait", "--for=condition=Completed", "tj/served", "--timeout", "100s")
        if falls_back:
            assert code == 0, said
        else:
            assert (code, name in said) == (1, True), said
    finally:
        first.send_signal(signal.SIGINT)
        told = first.communicate(timeout=60)[0]
    if falls_back:
        assert "FellBack" in told
        number = r"[\d,]+ samples are trained again" if harm is alter else "the number of repeated samples is unknown"
        assert re.search(number, told), told
        audit = read_checkpoint(str(tmp_path / "checkpoints"))
        assert audit.is_sound, audit.problems
        assert audit.head.is_complete
        assert list((tmp_path / "checkpoints" / "aside").glob(f"*/{name}"))


def test_a_run_whose_data_file_is_altered_says_so_and_ends(tmp_path):
    """The length is right, so only the server that loads it sees it; asked again for a while, the job then fails."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "job.yaml").write_text(SERVED.replace("FOLDER", str(tmp_path)))
    argv = [EDL, "run", "job.yaml", "--no-view", "--no-etcd"]
    first = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until((tmp_path / "checkpoints" / "HEAD").exists, "the first checkpoint")
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 130
    finally:
        first.kill()
        first.wait()
    head = read_checkpoint(str(tmp_path / "checkpoints")).head
    file = tmp_path / "checkpoints" / head.files[0].name
    content = bytearray(file.read_bytes())
    content[60] ^= 1
    file.write_bytes(content)
    second = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    said = second.stdout + second.stderr
    assert second.returncode == 1, said
    assert f"checkpoint file {file.name}" in said
    assert "edl data verify" in said
    assert file.read_bytes() == content
