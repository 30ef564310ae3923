"""A TrainingJob of a run stands only with the lock on its checkpoint folder, wherever it was created (M11)."""

import asyncio

import pytest

from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, ForbiddenError
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.local.control_plane.checkpoint_admission import CheckpointAdmission
from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointFolderLockedError, CheckpointLocks


class Run:
    """The API server of one run, with its locks."""

    def __init__(self, name, folder):
        self.server = MemoryServer(now=lambda: 0.0)
        self.locks = CheckpointLocks(run=name, working_dir=folder, own=folder / name)
        self.admission = CheckpointAdmission(self.server, self.locks)
        self.api = MemoryApi(self.server, field_manager="kubectl")
        self._version = self.server.history.version

    async def create(self, name, uri):
        await self.api.create(TRAINING_JOBS, job(name, uri))

    async def delete(self, name):
        """As the control plane hears of it."""
        await self.api.delete(TRAINING_JOBS, name, namespace="default")
        changes, self._version = self.server.history.since(self._version), self.server.history.version
        self.admission.handle_changes(changes)


def job(name, uri):
    container = {"name": "main", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    trainer = {"minReplicas": 1, "maxReplicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"trainer": trainer, "checkpoint": {"uri": uri}},
    }


@pytest.fixture
def first(tmp_path):
    run = Run("first", tmp_path)
    with run.locks:
        yield run


@pytest.fixture
def second(tmp_path):
    run = Run("second", tmp_path)
    with run.locks:
        yield run


async def test_a_job_whose_folder_another_run_holds_is_refused(first, second):
    """With the holder's name; nothing is stored, and its own folder is another one's to take."""
    await first.create("digits", "kept")
    with pytest.raises(
        ForbiddenError, match=r"spec\.checkpoint\.uri kept of tj/other is in use by tj/digits of run first"
    ):
        await second.create("other", "kept")
    assert second.server.all(TRAINING_JOBS) == []
    await second.create("other", "elsewhere")


async def test_the_lock_goes_with_the_object(first, second):
    """Another run has the folder then; until the object is gone it has not."""
    await first.create("digits", "kept")
    await asyncio.sleep(0)
    with pytest.raises(ForbiddenError):
        await second.create("other", "kept")
    await first.delete("digits")
    await second.create("other", "kept")
    with pytest.raises(ForbiddenError, match="tj/other of run second"):
        await first.create("digits", "kept")


async def test_a_folder_is_free_for_the_next_job_as_soon_as_its_object_is_gone(first):
    """Also before the control plane has heard of it."""
    await first.create("digits", "kept")
    await first.api.delete(TRAINING_JOBS, "digits", namespace="default")
    await first.create("other", "kept")


async def test_a_request_that_stores_no_job_keeps_no_lock(first, second):
    """A dry run, and a name that is taken: the standing job's folder stays locked."""
    await first.api.check_create(TRAINING_JOBS, job("digits", "tried"))
    await first.create("digits", "kept")
    with pytest.raises(AlreadyExistsError):
        await first.create("digits", "tried")
    await asyncio.sleep(0)
    await second.create("other", "tried")
    with pytest.raises(ForbiddenError):
        await second.create("third", "kept")


async def test_a_job_that_moves_to_another_folder_locks_that_one(first, second):
    """And leaves the one before; a folder that is in use is refused."""
    await first.create("digits", "before")
    await second.create("other", "taken")

    async def move(uri):
        change = {"spec": {"checkpoint": {"uri": uri}}}
        await first.api.patch(TRAINING_JOBS, "digits", change, namespace="default")
        await asyncio.sleep(0)

    with pytest.raises(ForbiddenError, match="tj/other of run second"):
        await move("taken")
    await move("after")
    await second.create("third", "before")
    with pytest.raises(ForbiddenError, match="tj/digits of run first"):
        await second.create("fourth", "after")


async def test_jobs_submitted_together_have_all_locks_or_none(first, second):
    """Before any of them is created."""
    await first.create("digits", "taken")
    with pytest.raises(CheckpointFolderLockedError), second.admission.reserve([job("a", "free"), job("b", "taken")]):
        raise AssertionError("it was not refused")
    await first.create("other", "free")
    with second.admission.reserve([job("a", "x"), job("b", "y")]):
        await second.create("a", "x")
        await asyncio.sleep(0)
        with pytest.raises(ForbiddenError):
            await first.create("c", "y")
    await first.create("c", "y")
    with pytest.raises(ForbiddenError):
        await first.create("d", "x")


async def test_an_unusable_uri_is_refused(first):
    """With the field's path."""
    with pytest.raises(ForbiddenError, match=r"spec\.checkpoint\.uri nosuch://folder of tj/digits"):
        await first.create("digits", "nosuch://folder")
