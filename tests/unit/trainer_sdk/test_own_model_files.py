"""A script's own model as a file: any names and arrays come back as they were, anything else is refused in words."""

import numpy as np
import pytest

from master.api.checkpoints.storage import open_storage
from master.api.identities import Lineage
from master.api.positions import PositionSet
from trainer_sdk.errors import UsageError
from trainer_sdk.own_model import read_model, write_model

APPLIED = PositionSet.span(0, 8)


def write(storage, arrays):
    return write_model(storage, "model-1.npz", arrays, applied=APPLIED, lineage=Lineage(1))


def test_what_is_written_is_read(tmp_path):
    """Also under names that an archive, or the function that writes it, gives a meaning to."""
    storage = open_storage(str(tmp_path))
    names = ("w", "file", "allow_pickle", "layer/0.weight", "../x", "w.npy", "")
    arrays = {name: np.full((2, 3), number) for number, name in enumerate(names)} | {"scalar": 7, "bits": [True]}
    record = write(storage, arrays)
    read = read_model(storage, record)
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())
    assert record.marks[0].applied == APPLIED


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "save.. gave None; return a dict"),
        ([1, 2], "return a dict"),
        ({1: np.zeros(2)}, "return a dict"),
        ({"w": np.array([object()])}, "'w' holds Python objects"),
        ({"w": None}, "'w' holds Python objects"),
    ],
)
def test_what_is_no_model_is_refused_and_nothing_is_written(tmp_path, given, words):
    """A forgotten `return` is the commonest; it was an AttributeError of this package."""
    with pytest.raises(UsageError, match=words):
        write(open_storage(str(tmp_path)), given)
    assert list(tmp_path.iterdir()) == []
