"""Which failures to read a checkpoint say that it is damaged."""

import pytest

from master.api.errors import StorageAlteredError, StorageError, StorageMissingError
from trainer_sdk.errors import CheckpointError


@pytest.mark.parametrize(
    ("cause", "is_damage"),
    [
        (None, True),
        (StorageAlteredError("f", "is cut short"), True),
        (StorageMissingError("f", "is gone"), True),
        (StorageError("f", "503 Slow Down"), False),
    ],
)
def test_storage_that_does_not_answer_damages_nothing(cause, is_damage):
    """Such a failure tells nothing of the script: it is not counted against the job's backoffLimit."""
    error = CheckpointError("f", "cannot be read")
    error.__cause__ = cause
    assert error.is_damage is is_damage
