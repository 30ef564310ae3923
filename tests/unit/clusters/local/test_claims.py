"""One run per checkpoint folder: two would write one job's history into one place."""

import pytest

from autoscaler.clusters.local.run_files.checkpoint_locks import Claims, FolderInUseError
from master.api.errors import StorageError


def test_a_folder_that_another_run_holds_is_refused_with_its_name(tmp_path):
    """By plain path or URI, relative or not; and free again when that run is over."""
    with Claims(run="first") as first:
        first.claim("digits", "kept", working_dir=tmp_path)
        with Claims(run="second") as second:
            with pytest.raises(FolderInUseError, match="in use by tj/digits of run first"):
                second.claim("other", f"file://{tmp_path}/kept", working_dir=tmp_path)
            second.claim("other", str(tmp_path / "elsewhere"), working_dir=tmp_path)
    with Claims(run="third") as third:
        third.claim("digits", "kept", working_dir=tmp_path)


def test_two_jobs_of_one_run_share_no_folder(tmp_path):
    with Claims(run="one") as claims:
        claims.claim("a", "kept", working_dir=tmp_path)
        with pytest.raises(FolderInUseError, match="tj/a of run one"):
            claims.claim("b", "kept", working_dir=tmp_path)


def test_a_uri_of_no_known_kind_is_refused(tmp_path):
    with Claims(run="one") as claims, pytest.raises(StorageError):
        claims.claim("a", "nosuch://folder", working_dir=tmp_path)


def test_a_run_uses_a_folder_that_is_open_to_all_only_where_it_was_told_to(tmp_path):
    """On a shared machine another user could hold its locks; in a container there is none (ADR 0170)."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    with Claims(run="one") as claims, pytest.raises(StorageError, match="every user may write to"):
        claims.claim("a", "kept", working_dir=tmp_path)
    with Claims(run="two", allows_shared=True) as claims:
        claims.claim("a", "kept", working_dir=tmp_path)
