"""Named arrays as one file of a checkpoint folder, a NumPy archive without pickles, and back."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping

import numpy as np

from master.api.checkpoints.storage import Storage
from master.api.checkpoints.storage_errors import WrittenFile
from master.api.errors import StorageError
from master.api.messages.checkpoint_files import FileRecord
from trainer_sdk.errors import CheckpointError
from trainer_sdk.group.port import HostArray


def write_arrays(storage: Storage, name: str, arrays: Mapping[str, HostArray]) -> WrittenFile:
    """Writes arrays of numbers under any names.  Raises CheckpointError when they could not be written."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # not np.savez, whose own parameters no array may be named after
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    try:
        return storage.write_file(name, [content.getbuffer()])
    except StorageError as error:
        raise CheckpointError(name, error.problem) from error


def read_arrays(storage: Storage, file: FileRecord) -> dict[str, HostArray]:
    """The arrays by their names.  Raises CheckpointError unless the file is the one that was committed."""
    try:
        content = storage.read(file.name)
    except StorageError as error:
        raise CheckpointError(file.name, error.problem) from error
    if hashlib.sha256(content).hexdigest() != file.digest:
        raise CheckpointError(file.name, "its bytes are not those that were committed: restore an older checkpoint")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {key: archive[f"{key}.npy"] for key in archive.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(file.name, f"is no NumPy archive ({error})") from error
