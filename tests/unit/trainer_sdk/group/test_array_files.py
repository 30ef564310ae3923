"""Arrays as a file of a checkpoint: any names come back, in the layout of safetensors."""

import json

import numpy as np
import pytest

from master.api.checkpoints.storage import open_storage
from master.api.identities import Lineage
from master.api.messages.checkpoint_files import FileRecord
from trainer_sdk.errors import UsageError
from trainer_sdk.group.array_files import read_arrays, write_arrays


def test_what_is_written_is_read(tmp_path):
    """Also under names that file systems give a meaning to; every byte after the header belongs to an array."""
    storage = open_storage(str(tmp_path))
    names = ("w", "file", "layer/0.weight", "../x", "w.npy", "")
    arrays = {name: np.full((2, 3), number) for number, name in enumerate(names)} | {"scalar": np.array(7)}
    arrays |= {"odd": np.arange(3, dtype=np.int8), "half": np.ones(4, np.uint16)}

    written = write_arrays(storage, "copy", arrays, about={"a": "b"}, dtypes={"half": "bfloat16"})
    record = FileRecord(name="copy", size_bytes=written.size_bytes, digest=written.digest, lineage=Lineage(1), marks=())
    header, content = read_arrays(storage, record)

    assert header.about == {"a": "b"}
    assert header.arrays.keys() == arrays.keys()
    for name, place in header.arrays.items():
        assert content[place.begin : place.end] == arrays[name].tobytes()
        assert place.begin % arrays[name].itemsize == 0
        assert place.shape == arrays[name].shape
    assert sum(place.end - place.begin for place in header.arrays.values()) == sum(a.nbytes for a in arrays.values())
    raw = (tmp_path / "copy").read_bytes()
    labels = {
        name: one.get("dtype") for name, one in json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")]).items()
    }
    assert (labels["half"], labels["odd"], labels["w"]) == ("BF16", "I8", "I64")


def test_a_name_of_the_format_is_refused(tmp_path):
    """No array may pass for the header's own entry."""
    with pytest.raises(UsageError, match="__metadata__"):
        write_arrays(open_storage(str(tmp_path)), "copy", {"__metadata__": np.ones(1)}, about={}, dtypes={})
