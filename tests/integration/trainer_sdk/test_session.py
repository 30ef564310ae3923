"""One script against a real master: what the loop refuses, a model of the script's own, a run without a cluster."""

import re

import numpy as np
import pytest

import trainer_sdk as edl
from master.api.checkpoints.audit import read_checkpoint
from master.api.checkpoints.checkpoint_files import read_manifest
from master.api.checkpoints.storage import open_storage
from tests.harness.job_processes import PROGRAMS, running
from tests.harness.lone_script import run_alone
from tests.harness.master_process import JOB
from trainer_sdk.errors import CheckpointError, TableError, UsageError
from trainer_sdk.group.replica_files import read_copy
from trainer_sdk.session import open_session


@pytest.fixture
def job(tmp_path):
    with running(tmp_path) as job:
        yield job


@pytest.fixture
def group(tmp_path):
    with running(tmp_path, EDL_GROUP="1") as job:
        yield job


def open_in(job, **settings):
    return open_session(
        {"EDL_MASTER": job.address, "EDL_JOB": JOB, "EDL_CHECKPOINT_URI": str(job.checkpoints)} | settings
    )


def declare(session, **changes):
    return session.dataset("d", **({"size": 100, "epochs": 2, "batch_size": 10, "seed": 3} | changes))


def test_the_loop_refuses_what_cannot_work(job):
    """done() twice, done() of a foreign batch, declaring too late, batches never finished: each at once and clearly."""
    with open_in(job) as session:
        data = declare(session)
        first = next(data)
        with pytest.raises(UsageError, match=r"all_reduce\(\) is for own_model"):
            first.all_reduce(np.ones(3))
        first.done()

        with pytest.raises(UsageError, match="done already"):
            first.done()
        with pytest.raises(UsageError, match="never gave"):
            data.done("no batch")
        with pytest.raises(UsageError, match="declare everything before"):
            session.tables({"w": edl.dense(3)})
        with pytest.raises(UsageError, match="19 batches were given and never finished"):
            for _ in data:
                pass


def test_the_loop_with_parameter_servers_refuses_what_cannot_work(tmp_path):
    """Out of order, twice, of the wrong shape: each at once, and the batch can still be finished."""
    with running(tmp_path, servers=1) as job, open_in(job) as session:
        data = declare(session)
        model = session.tables({"w": edl.dense((3, 4)), "e": edl.sparse(10, 2)}, optimiser=edl.sgd(0.1))
        batch = next(data)
        with pytest.raises(UsageError, match=r"before pull"):
            model.push({"w": np.ones((3, 4))})
        weights = model.pull()
        with pytest.raises(UsageError, match="not pushed"):
            batch.done()
        with pytest.raises(UsageError, match="neither pushed nor done"):
            next(data)
        for wrong in ({"v": np.ones(3)}, {"w": np.ones(3)}, {"e": np.ones((10, 2))}):
            with pytest.raises(TableError, match=r"tables\.v|push"):
                model.push(wrong)
        with pytest.raises(TableError, match="row 10 of 10"):
            model.pull_rows("e", np.array([10]))
        model.push({"w": np.ones((3, 4))})
        with pytest.raises(UsageError, match="pushed already"):
            model.push({"w": np.ones((3, 4))})
        batch.done(loss=1.0)
        with pytest.raises(UsageError, match="done already"):
            batch.done()

        assert weights["w"].shape == (3, 4)
        assert np.allclose(model.pull()["w"], -0.1), "one push, one step"


def test_another_size_than_the_jobs_is_refused_by_field(job):
    """The data set is durable: a script that was edited meanwhile is told which number differs."""
    with open_in(job) as session:
        next(declare(session)).done()
    with open_in(job, EDL_NAME="digits-trainer-1") as session, pytest.raises(UsageError, match="size"):
        next(declare(session, size=99))


def test_rank_and_world_size_are_those_of_now(job):
    """A second trainer changes both."""
    with open_in(job, EDL_NAME="digits-trainer-0") as one:
        declare(one)
        assert (one.rank, one.world_size) == (0, 1)
        with open_in(job, EDL_NAME="digits-trainer-1", EDL_ORDINAL="1") as two:
            declare(two)
            assert (two.rank, two.world_size) == (1, 2)
            job.wait_for(lambda: one.world_size == 2, "the first to hear of the second")


class Counter:
    """A model of the script's own: how often each record was seen."""

    def __init__(self):
        self.counts = None

    def save(self):
        return {"counts": self.counts.copy()}

    def restore(self, arrays):
        self.counts = np.zeros(100, dtype=np.int64) if arrays is None else arrays["counts"].copy()

    def train(self, data, *, batches=10**9):
        for _, batch in zip(range(batches), data, strict=False):
            self.counts[batch.indices] += 1
            batch.done(loss=1.0)


def open_member(group, **settings):
    return open_in(group, EDL_GROUP="1", **settings)


def test_a_model_of_ones_own_goes_on_from_what_it_has(group):
    """Rules 33 to 35: work after the checkpoint is rolled back with the model: each record is in it once an epoch."""
    first = Counter()
    with open_member(group) as session:
        data = declare(session)
        session.own_model(save=first.save, restore=first.restore)
        first.train(data, batches=7)
        manifest = session.checkpoint()
        first.train(data, batches=3)  # trained, never committed
    committed = read_manifest(open_storage(str(group.checkpoints)), manifest)
    saved = read_copy(open_storage(str(group.checkpoints)), committed.files).captured.arrays

    assert len(committed.data) == saved["counts"].sum() == 70

    second = Counter()
    with open_member(group) as session:
        data = declare(session)
        session.own_model(save=second.save, restore=second.restore)
        second.train(data)
        assert session.has_ended

    assert second.counts.tolist() == [2] * 100
    audit = read_checkpoint(str(group.checkpoints))
    assert audit.is_sound
    assert audit.head.is_complete


def test_a_checkpoint_is_of_whole_batches_and_of_some(group):
    """Is a batch in hand in the model or not?  Nobody can say, so nothing is written; twice the same is one."""
    model = Counter()
    with open_member(group) as session:
        data = declare(session)
        session.own_model(save=model.save, restore=model.restore)
        with pytest.raises(CheckpointError, match="no step is trained since"):
            session.checkpoint()
        batch = next(data)
        with pytest.raises(UsageError, match="within a batch"):
            session.checkpoint()
        with pytest.raises(UsageError, match="never finished"):
            next(data)
        batch.done()
        assert session.checkpoint() == session.checkpoint()


def test_two_trainers_that_sum_nothing_are_told_so(group):
    """Each would train its own model on its own part of each step."""
    members = [group.trainer(number, "chaos_own_model.py", EDL_LISTEN="127.0.0.1:0") for number in range(2)]

    for number, member in enumerate(members):
        assert group.wait_for_exit(member) == 1
        assert "2 trainers each hold this model. Call batch.all_reduce" in group.log(f"trainer-{number}")


def test_a_model_of_ones_own_in_a_job_that_is_no_group_is_refused(job):
    """The job's master would share out records, and the model would be in no checkpoint."""
    model = Counter()
    with open_in(job) as session:
        session.own_model(save=model.save, restore=model.restore)
        with pytest.raises(UsageError, match=r"own_model.*spec\.group.*edl launch --group"):
            next(declare(session))


def test_a_script_runs_alone_with_its_own_master_and_server(tmp_path):
    """`python script.py` without a cluster: the same protocol, the same counters, no process or folder left."""
    out = tmp_path / "ledger.npz"
    done = run_alone(tmp_path, str(PROGRAMS / "ledger.py"), "--size", "60", "--epochs", "2", "--out", str(out))

    assert done.returncode == 0, done.stderr
    assert "no EDL_MASTER" in done.stderr
    assert np.load(out)["counts"].tolist() == [2] * 60
    assert list(tmp_path.glob("edl-*")) == []


def test_numpy_example_of_a_group_runs_alone_and_trains(tmp_path):
    """As the guide shows it: a group of one, by the lines with which several trainers sum their gradients."""
    done = run_alone(tmp_path, "examples/digits_group_numpy.py", "--epochs", "4", "--hidden", "64")

    assert done.returncode == 0, done.stderr
    (accuracy,) = re.findall(r"test accuracy (\S+)", done.stdout)
    assert float(accuracy) > 0.85


BROKEN_OFF = """
import pathlib, signal, tempfile
import trainer_sdk as edl

def ring(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ring)
with edl.open() as session:
    data = session.dataset("d", size=10, epochs=1, batch_size=2)
    for _ in range(3):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)  # a master takes longer to start
            next(data)
        except KeyboardInterrupt:
            print("broken off")
    print("left over:", list(pathlib.Path(tempfile.gettempdir()).glob("edl-*")))
    for batch in data:
        batch.done()
    print("ended:", session.has_ended)
"""


def test_a_start_that_was_broken_off_is_begun_anew(tmp_path):
    """Ctrl-C in a notebook while the first batch is waited for: no child is left over, and the next try works."""
    done = run_alone(tmp_path, "-c", BROKEN_OFF)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["broken off"] * 3 + ["left over: []", "ended: True"]
    assert list(tmp_path.glob("edl-*")) == []


TWICE = """
import numpy as np
import trainer_sdk as edl

def train(batches):
    with edl.open() as session:
        data = session.dataset("d", size=10, epochs=1, batch_size=2)
        session.own_model(save=lambda: {"a": np.zeros(1)}, restore=lambda arrays: None)
        for _, batch in zip(range(batches), data):
            batch.done()
        if batches < 9:
            session.checkpoint()
    return session.has_ended

print(train(2), train(9))
"""


def test_two_sessions_of_one_process_use_one_folder(tmp_path):
    """A notebook's second run: the first session's lock on its own checkpoint folder went with it (M11)."""
    done = run_alone(tmp_path, "-c", TWICE, EDL_CHECKPOINT_URI=str(tmp_path / "checkpoints"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "True"]


RETRIED = """
import numpy as np
import trainer_sdk as edl
from trainer_sdk.group import joining

with edl.open() as session:
    data = session.dataset("d", size=10, epochs=1, batch_size=2)
    session.own_model(save=lambda: {"a": np.zeros(1)}, restore=lambda arrays: None)
    connect, joining.MemberRuntime = joining.MemberRuntime, None
    try:
        next(data)
    except TypeError:
        print("broken off")
    joining.MemberRuntime = connect
    for batch in data:
        batch.done()
    print("ended:", session.has_ended)
"""


def test_a_start_that_was_broken_off_gives_its_folder_back(tmp_path):
    """After the script's own model has the folder, and before the master answers."""
    folder = tmp_path / "checkpoints"
    done = run_alone(tmp_path, "-c", RETRIED, EDL_CHECKPOINT_URI=str(folder))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["broken off", "ended: True"]


def test_a_script_alone_trains_into_a_folder_that_all_may_write_to(tmp_path):
    """The mode of a Kubernetes emptyDir: one line says so, and it goes on (ADR 0170)."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    folder.chmod(0o777)
    done = run_alone(tmp_path, "-c", TWICE.replace("print(train(2), ", "print("), EDL_CHECKPOINT_URI=str(folder))

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"]
    assert done.stderr.count("every user may write to") == 1


LEFT_OPEN = """
import trainer_sdk as edl
session = edl.open()
data = session.dataset("d", size=10, epochs=1, batch_size=2)
next(data)
"""


def test_a_script_that_never_closes_is_told_so_and_leaves_cleanly(tmp_path):
    """Exit without close: the lease is returned, the children end, the author is told."""
    done = run_alone(tmp_path, "-c", LEFT_OPEN)

    assert done.returncode == 0
    assert "without close()" in done.stderr
    assert list(tmp_path.glob("edl-*")) == []


MASTER_DIES = """
import os, signal
import trainer_sdk as edl
with edl.open(master_budget_s=10_000.0) as session:
    for batch in session.dataset("d", size=100, epochs=2, batch_size=2):
        batch.done()
        os.kill(session._connection.standalone._children[0][1].pid, signal.SIGKILL)
"""


def test_a_script_alone_whose_master_has_died_is_told_at_once(tmp_path):
    """Nobody starts it again, so there is nothing to wait for; a `master.py` in the working directory is not run."""
    elsewhere, script = tmp_path / "elsewhere", tmp_path / "script.py"
    elsewhere.mkdir()
    (elsewhere / "master.py").write_text("raise SystemExit('not yours')")
    script.write_text(MASTER_DIES)
    done = run_alone(tmp_path, str(script), cwd=elsewhere)

    assert done.returncode == 1
    assert "python -m master, started by this script, ended with -9" in done.stderr
    assert list(tmp_path.glob("edl-*")) == []
