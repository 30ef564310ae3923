"""The checkpoint of a folder that is exported: which one, whether its files are whole, and its parts by kind of job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from master.api.checkpoints.audit import audit_storage, contradictions
from master.api.checkpoints.checkpoint_files import check_file, read_manifest, read_retired
from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.storage import Storage
from master.api.errors import StorageMissingError
from master.api.identities import ManifestId
from trainer_sdk.errors import CheckpointError, UsageError
from trainer_sdk.export.replica_parts import replica_parts
from trainer_sdk.export.saved_tensors import MODEL, SavedPart
from trainer_sdk.export.stored_arrays import StoredArrays
from trainer_sdk.export.table_parts import tables_part
from trainer_sdk.group.captured_state import digest_arrays
from trainer_sdk.group.port import CapturedState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedCheckpoint:
    """A checkpoint whose tensors are read when they are asked for.  `captured`: the replica, of a group alone."""

    manifest: Manifest
    parts: Mapping[str, SavedPart]
    captured: CapturedState | None = None

    def digest(self) -> str | None:
        """Digest of the replica's arrays, all of which are read; None: this job is no group."""
        return None if self.captured is None else digest_arrays(self.captured.arrays)


def find_manifest(storage: Storage, checkpoint: str | None) -> Manifest:
    """The checkpoint of this id, one that a newer one has replaced too; None: the last one.

    Raises StorageError, ManifestError; CheckpointError where the folder does not tell which one is the last.
    """
    if checkpoint is None:
        audit = audit_storage(storage, verifies_files=False)
        manifest, problems = audit.head, list(audit.problems)
    else:
        manifest = _read_either(storage, ManifestId(checkpoint))
        problems = contradictions(manifest)
    if problems:
        advice = "" if checkpoint else "; `edl data verify` lists the checkpoints, --checkpoint ID chooses one"
        raise CheckpointError(str(manifest.id), f"{problems[0]}{advice}")
    return manifest


def check_files(storage: Storage, manifest: Manifest, on_progress: Callable[[int, int], None]) -> None:
    """Reads every byte.  Raises StorageError for a file that is not the one that was committed."""
    done, total = 0, sum(file.size_bytes for file in manifest.files)
    for file in manifest.files:
        check_file(storage, file, on_progress=partial(_with_offset, on_progress, done, total))
        done += file.size_bytes


def open_checkpoint(storage: Storage, manifest: Manifest) -> SavedCheckpoint:
    """Raises UsageError for a checkpoint without a model, CheckpointError and StorageError for one that is damaged."""
    if not manifest.files:
        raise UsageError(f"checkpoint {manifest.id} holds no model: this job's script keeps it by itself")
    if manifest.tables:
        return SavedCheckpoint(manifest=manifest, parts={MODEL: tables_part(storage, manifest)})
    if manifest.state is None:
        raise UsageError(f"checkpoint {manifest.id} holds neither tables nor a replica of a group: not supported")
    arrays, file = StoredArrays(storage, manifest.files), manifest.files[0]
    loaded = arrays.loaded()
    if (loaded.state, loaded.skipped) != (manifest.state, manifest.quarantine):
        description = f"step {loaded.state.step} of generation {loaded.state.generation}, skipped {loaded.skipped}"
        meant = f"step {manifest.state.step} of generation {manifest.state.generation}, skipped {manifest.quarantine}"
        raise CheckpointError(file.name, f"is of {description}; its manifest says {meant}")
    parts = replica_parts(file.name, loaded.captured, arrays)
    return SavedCheckpoint(manifest=manifest, parts=parts, captured=loaded.captured)


def _read_either(storage: Storage, manifest_id: ManifestId) -> Manifest:
    try:
        return read_manifest(storage, manifest_id)
    except StorageMissingError as error:
        try:
            return read_retired(storage, manifest_id)
        except StorageMissingError:
            raise error from None


def _with_offset(on_progress: Callable[[int, int], None], before: int, total: int, read: int) -> None:
    on_progress(before + read, total)
