"""The environment of a trainer process that a benchmark starts beside a master of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.harness.master_process import JOB

ROOT: Final = Path(__file__).parents[2]


def trainer_environment(folder: Path, master: str, ordinal: int) -> dict[str, str]:
    """A member of a group: its connections go through sockets in `folder`, which also gets the checkpoints."""
    return {
        "EDL_JOB": JOB,
        "EDL_NAME": f"trainer-{ordinal}",
        "EDL_ORDINAL": str(ordinal),
        "EDL_MASTER": master,
        "EDL_GROUP": "1",
        "EDL_LISTEN": f"unix:{folder}/sockets",
        "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
        "PYTHONPATH": str(ROOT),
    }
