"""One run per checkpoint folder: two would write one job's history into one place."""

import pytest

from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointFolderLockedError, CheckpointLocks
from master.api.errors import StorageError


def locks(tmp_path, run="one", **options):
    return CheckpointLocks(run=run, working_dir=tmp_path, own=tmp_path / "own", **options)


def test_a_folder_that_another_run_holds_is_refused_with_its_name(tmp_path):
    """By plain path or URI, relative or not; and free again when that run is over."""
    with locks(tmp_path, "first") as first:
        first.lock("default/digits", "kept")
        with locks(tmp_path, "second") as second:
            with pytest.raises(CheckpointFolderLockedError, match="in use by tj/digits of run first"):
                second.lock("default/other", f"file://{tmp_path}/kept")
            second.lock("default/other", str(tmp_path / "elsewhere"))
    with locks(tmp_path, "third") as third:
        third.lock("default/digits", "kept")


@pytest.mark.parametrize("folder", ["kept", "own/kept"])
def test_two_jobs_of_one_run_share_no_folder(tmp_path, folder):
    """Neither by a symbolic link, nor below the run's own folder; the holder itself may ask again."""
    with locks(tmp_path) as claims:
        claims.lock("default/a", folder)
        claims.lock("default/a", folder)
        (tmp_path / "link").symlink_to(tmp_path / folder)
        for uri in (folder, "link"):
            with pytest.raises(CheckpointFolderLockedError, match="tj/a of run one"):
                claims.lock("default/b", uri)


def test_a_released_folder_is_free_for_other_jobs_and_runs(tmp_path):
    """The others are kept."""
    with locks(tmp_path, "first") as first, locks(tmp_path, "second") as second:
        kept = first.lock("default/a", "a")
        first.lock("default/b", "b")
        first.keep_only([kept])
        second.lock("default/b", "b")
        with pytest.raises(CheckpointFolderLockedError, match="tj/a of run first"):
            second.lock("default/c", "a")


def test_a_uri_of_no_known_kind_is_refused(tmp_path):
    with locks(tmp_path) as claims, pytest.raises(StorageError):
        claims.lock("default/a", "nosuch://folder")


def test_a_run_uses_a_folder_that_is_open_to_all_only_where_it_was_told_to(tmp_path):
    """On a shared machine another user could hold its locks; in a container there is none (ADR 0170)."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    with locks(tmp_path) as claims, pytest.raises(StorageError, match="every user may write to"):
        claims.lock("default/a", "kept")
    with locks(tmp_path, "two", allows_shared=True) as claims:
        claims.lock("default/a", "kept")
