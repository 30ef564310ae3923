"""A disk that fills at any write of a commit, or of an answer, leaves a folder that starts rightly (M6, M11)."""

import subprocess
from contextlib import suppress

import pytest

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.folder_contents import RequestedStart
from master.api.checkpoints.local_storage import LocalStorage
from master.api.errors import StorageError
from master.api.identities import HistoryId
from master.durable.checkpoint_folder import CheckpointFolder
from tests.unit.master.api.checkpoints.test_damage import committed, started
from tests.unit.master.api.checkpoints.test_resume import followed

ROOM_BYTES = 256 << 10
PAGE_BYTES = 4096


@pytest.fixture
def storage(tmp_path):
    """A file system of its own.  Skips where nothing may be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(argv, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not allowed here: {mounted.stderr.decode().strip()}")
    yield LocalStorage(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def leave(storage, pages):
    """All room is taken but so many pages."""
    ballast = storage._folder / "ballast"
    ballast.unlink(missing_ok=True)
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(PAGE_BYTES))
    with ballast.open("r+b") as file:
        file.truncate(ballast.stat().st_size // PAGE_BYTES * PAGE_BYTES - pages * PAGE_BYTES)
    return ballast


def test_a_disk_that_fills_at_any_write_of_a_commit_leaves_the_last_one(storage):
    """Data file, manifest, HEAD, retention: with each page more one more write gets through; no part file is left."""
    first = committed(storage, 1, None)
    write_head_hint(storage, first.id)
    folder, before, whole = CheckpointFolder(storage), started(storage), 0
    for pages in range(16):
        ballast = leave(storage, pages)
        try:
            second = committed(storage, 2, first.id)
            folder.write_head(second.id)
            folder.retain(frozenset({second.id}))
        except StorageError:
            assert started(storage) == before, f"{pages} pages"
        else:
            whole += 1
            assert started(storage)[0] == second
        ballast.unlink()
        assert not list(storage._folder.glob(".part-*"))
        if storage.list("retired-"):
            storage.move(f"retired-{first.id}.json", f"manifest-{first.id}.json")
        write_head_hint(storage, first.id)
        assert started(storage) == before, f"{pages} pages, and room again"
    assert 0 < whole < 16


def test_an_answer_that_finds_no_room_is_followed_when_there_is_some(storage):
    """Setting aside is repeated from wherever it stopped; in between nothing begins at 0."""
    first = committed(storage, 1, None)
    second = committed(storage, 2, first.id)
    write_head_hint(storage, second.id)
    answer = RequestedStart(manifest=first.id, history=HistoryId("new"))
    ballast = leave(storage, 0)
    with pytest.raises(StorageError):
        followed(storage, answer)
    assert started(storage)[0] in (first, second)
    ballast.unlink()
    assert followed(storage, answer).head == first
    assert started(storage)[0] == first
    assert storage.exists(f"aside/new/{second.files[0].name}")
