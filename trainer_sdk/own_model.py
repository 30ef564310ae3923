"""Model kept by the script itself: one trainer, no parameter servers, still exactly once (rules 33 to 36).

The script's model is the bucket.  Its checkpoint is one file with the arrays and, beside it, the positions that they
contain; the master commits both or neither.  So a restarted trainer continues from the positions that its model has.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from master.api.checkpoints.folder_lock import hold_as_writer
from master.api.checkpoints.storage import Storage, open_storage
from master.api.errors import StorageError
from master.api.identities import Lineage
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError, UsageError
from trainer_sdk.protocol.trainer_events import CheckpointWritten
from trainer_sdk.runtime.driver import TrainerDriver

Arrays = Mapping[str, npt.NDArray[Any]]
SaveHook = Callable[[], Arrays]
RestoreHook = Callable[[Arrays | None], None]

THE_MODEL: Final = PositionSet.span(0, 1)  # one bucket


class OwnModel:
    """Checkpoints and restores the script's model.  Made by `Session.own_model`."""

    def __init__(self, save: SaveHook, restore: RestoreHook, *, uri: str, every_s: float, budget_s: float) -> None:
        if not uri:
            raise UsageError(
                "EDL_CHECKPOINT_URI: a script that keeps its model needs a folder for it; set spec.checkpoint.uri, "
                "or EDL_CHECKPOINT_URI=/some/folder for `python script.py`"
            )
        self._save = save
        self._restore = restore
        self._storage: Storage = open_storage(uri)
        self._lock = hold_as_writer(self._storage)
        self._every_s = every_s
        self._budget_s = budget_s
        self._offers = 0
        self._last_s = monotonic()

    @property
    def is_due(self) -> bool:
        return monotonic() - self._last_s >= self._every_s

    def checkpoint(self, driver: TrainerDriver) -> str:
        """Commits model and marks together; the manifest's id.  Raises CheckpointError; training may continue.

        Call it at a step boundary: the marks are those of the batches that are done.
        """
        self._last_s = monotonic()
        self._offers += 1
        state = driver.state
        name = f"model-{state.lineage}-{state.incarnation}-{self._offers}.npz"
        record = write_model(self._storage, name, self._save(), applied=state.applied, lineage=state.lineage)
        driver.handle(CheckpointWritten(offer=self._offers, file=record))
        answer = driver.wait_for_offer(offer=self._offers, budget_s=self._budget_s)
        if answer.manifest is None:
            raise CheckpointError(name, f"the master did not commit it: {answer.reason}")
        return answer.manifest

    def close(self) -> None:
        """Releases the folder, so that another run may write into it.  May be repeated."""
        if self._lock is not None:
            self._lock.release()

    def restart(self, file: FileRecord | None) -> None:
        """Restores the script's model from this file; None: it starts from zero."""
        self._restore(read_model(self._storage, file) if file else None)


def write_model(storage: Storage, name: str, arrays: Arrays, *, applied: PositionSet, lineage: Lineage) -> FileRecord:
    """Writes the arrays as a NumPy archive without pickles.

    Raises UsageError unless they are names and arrays, CheckpointError when they could not be written.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # not np.savez, whose own parameters no array may be named after
        for key, array in _checked(arrays).items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    try:
        written = storage.write_file(name, [content.getbuffer()])
    except StorageError as error:
        raise CheckpointError(name, error.problem) from error
    marks = (BucketMarks(buckets=THE_MODEL, applied=applied),)
    return FileRecord(name=name, size_bytes=written.size_bytes, digest=written.digest, lineage=lineage, marks=marks)


def _checked(arrays: object) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(arrays, Mapping) or not all(isinstance(key, str) for key in arrays):
        raise UsageError(f"own_model(save=...): save() gave {arrays!r:.80}; return a dict of names and arrays")
    checked = {key: np.asarray(array) for key, array in arrays.items()}
    for key, array in checked.items():
        if array.dtype.hasobject:
            raise UsageError(f"own_model(save=...): {key!r} holds Python objects; save numbers, as a NumPy array each")
    return checked


def read_model(storage: Storage, file: FileRecord) -> dict[str, npt.NDArray[Any]]:
    """The saved arrays.  Raises CheckpointError unless the file is the one that was committed."""
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
