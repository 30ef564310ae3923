"""One run per checkpoint folder: two would write one job's history into one place."""

import pytest

from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointFolderLockedError, CheckpointLocks
from master.api.errors import StorageError


def test_a_folder_that_another_run_holds_is_refused_with_its_name(tmp_path):
    """By plain path or URI, relative or not; and free again when that run is over."""
    with CheckpointLocks(run="first") as first:
        first.lock("digits", "kept", working_dir=tmp_path)
        with CheckpointLocks(run="second") as second:
            with pytest.raises(CheckpointFolderLockedError, match="in use by tj/digits of run first"):
                second.lock("other", f"file://{tmp_path}/kept", working_dir=tmp_path)
            second.lock("other", str(tmp_path / "elsewhere"), working_dir=tmp_path)
    with CheckpointLocks(run="third") as third:
        third.lock("digits", "kept", working_dir=tmp_path)


def test_two_jobs_of_one_run_share_no_folder(tmp_path):
    with CheckpointLocks(run="one") as claims:
        claims.lock("a", "kept", working_dir=tmp_path)
        with pytest.raises(CheckpointFolderLockedError, match="tj/a of run one"):
            claims.lock("b", "kept", working_dir=tmp_path)


def test_a_uri_of_no_known_kind_is_refused(tmp_path):
    with CheckpointLocks(run="one") as claims, pytest.raises(StorageError):
        claims.lock("a", "nosuch://folder", working_dir=tmp_path)


def test_a_run_uses_a_folder_that_is_open_to_all_only_where_it_was_told_to(tmp_path):
    """On a shared machine another user could hold its locks; in a container there is none (ADR 0170)."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    with CheckpointLocks(run="one") as claims, pytest.raises(StorageError, match="every user may write to"):
        claims.lock("a", "kept", working_dir=tmp_path)
    with CheckpointLocks(run="two", allows_shared=True) as claims:
        claims.lock("a", "kept", working_dir=tmp_path)
