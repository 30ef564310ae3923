"""Copies of a replica while storage hangs: nobody waits for them for ever, and memory holds one at most."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.manifest import manifest_name
from master.api.checkpoints.storage import open_storage
from master.api.positions import EMPTY
from tests.harness.checkpoint_folders import commit_plain
from tests.unit.trainer_sdk.group.group_world import DATASET
from tests.unit.trainer_sdk.group.member_cases import sid
from trainer_sdk.errors import CheckpointError
from trainer_sdk.group.core.member_events import CopyTaken, CopyWritten, TakeCopy
from trainer_sdk.group.port import CapturedState
from trainer_sdk.group.replica_work import WRITE_LIMIT_S, ReplicaWork
from trainer_sdk.group.step_times import StepTimes


class Hanging:
    """Storage that takes nothing until it is let go."""

    def __init__(self):
        self.is_free, self.was_asked = threading.Event(), threading.Event()

    def __getattr__(self, name):
        def hang(*_, **__):
            self.was_asked.set()
            self.is_free.wait(30)
            raise CheckpointError("copy", "the mount is gone")

        return hang


class Shell:
    """Keeps what the member's state would be told, and what was put off."""

    def __init__(self):
        self.told, self.later, self.refusal, self.times = [], [], "", StepTimes()
        self.changed, self.refused_files = threading.RLock(), ()
        self.state = SimpleNamespace(incarnation="i", dataset=DATASET)
        self.stream = SimpleNamespace(after=lambda delay_s, action: self.later.append((delay_s, action)))

    def handle(self, event):
        self.told.append(event)


class Replica:
    def __init__(self):
        self.captured = 0

    def capture(self):
        self.captured += 1
        return CapturedState(arrays={"w": np.zeros(3)})


@pytest.fixture
def storage():
    hanging = Hanging()
    yield hanging
    hanging.is_free.set()


def test_copy_that_hanging_storage_does_not_take_is_given_up(storage):
    """Each member's word says that it cannot copy while it writes: no checkpoint of the job was tried any more."""
    shell, replica = Shell(), Replica()
    work, task = ReplicaWork(shell, replica, storage), TakeCopy(number=1, stamp=1, state=sid(1, 2), skipped=EMPTY)
    work.carry_out(task)
    assert storage.was_asked.wait(30)
    ((delay_s, give_up),) = shell.later
    assert (delay_s, shell.told) == (WRITE_LIMIT_S, [CopyTaken(work=task)])
    give_up()
    problem = f"storage: it has not taken a copy within {WRITE_LIMIT_S:.0f} s"
    assert shell.told[1:] == [CopyWritten(number=1, file=None, problem=problem)]
    again = TakeCopy(number=2, stamp=1, state=sid(1, 3), skipped=EMPTY)
    work.carry_out(again)
    assert shell.told[2:] == [CopyTaken(work=again), CopyWritten(number=2, file=None, problem=problem)]
    assert replica.captured == 1


def copied(work, shell, number, step):
    """The file of one more copy, once it is written."""
    work.carry_out(TakeCopy(number=number, stamp=1, state=sid(1, step), skipped=EMPTY))
    work._writer.join(30)
    (written,) = [event for event in shell.told if isinstance(event, CopyWritten) and event.number == number]
    return written.file


def test_file_of_a_refused_copy_goes_with_the_next_copy(tmp_path):
    """Where every commit is refused, storage holds the refused file of one copy, and not of all."""
    shell, storage = Shell(), open_storage(str(tmp_path))
    work = ReplicaWork(shell, Replica(), storage)
    for number in range(1, 6):
        shell.refused_files = (copied(work, shell, number, number).name,)
    assert storage.list("replica-") == shell.refused_files


def test_refused_file_that_a_manifest_names_stays(tmp_path):
    """An earlier master may have written the manifest, and not have moved head yet; with it the folder stays whole."""
    shell, storage = Shell(), open_storage(str(tmp_path))
    work = ReplicaWork(shell, Replica(), storage)
    first = copied(work, shell, 1, 1)
    write_manifest(storage, replace(commit_plain(storage), files=(first,)))
    shell.refused_files = (first.name,)
    copied(work, shell, 2, 2)
    assert first.name in storage.list("replica-")


def test_refused_file_stays_while_a_manifest_cannot_be_read(tmp_path):
    shell, storage = Shell(), open_storage(str(tmp_path))
    work = ReplicaWork(shell, Replica(), storage)
    first = copied(work, shell, 1, 1)
    shell.refused_files = (first.name,)
    (tmp_path / manifest_name(commit_plain(storage).id)).write_bytes(b"{")
    copied(work, shell, 2, 2)
    assert first.name in storage.list("replica-")
