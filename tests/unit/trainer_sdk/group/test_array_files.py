"""Arrays of a replica as a file: any names and arrays come back as they were."""

import numpy as np

from master.api.checkpoints.storage import open_storage
from master.api.identities import Lineage
from master.api.messages.checkpoint_files import FileRecord
from trainer_sdk.group.array_files import read_arrays, write_arrays


def test_what_is_written_is_read(tmp_path):
    """Also under names that an archive, or the function that writes it, gives a meaning to."""
    storage = open_storage(str(tmp_path))
    names = ("w", "file", "allow_pickle", "layer/0.weight", "../x", "w.npy", "")
    arrays = {name: np.full((2, 3), number) for number, name in enumerate(names)} | {"scalar": np.array(7)}

    written = write_arrays(storage, "copy.npz", arrays)
    record = FileRecord(
        name="copy.npz", size_bytes=written.size_bytes, digest=written.digest, lineage=Lineage(1), marks=()
    )
    read = read_arrays(storage, record)

    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())
