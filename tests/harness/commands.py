"""Programs of this machine that run to their end, within a budget; their output is kept."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.harness.errors import ProgramError

BUDGET_S: Final = 120.0


def run(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    shown: Sequence[str] = (),
    budget_s: float = BUDGET_S,
) -> str:
    """Standard output.  Raises ProgramError when it fails or takes longer; `shown` is the command in its message."""
    try:
        done = subprocess.run(
            command,
            env=environ,
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            input=stdin,
            check=False,
            timeout=budget_s,
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(shown or command, -1, f"did not end within {budget_s:.0f} s") from error
    if done.returncode != 0:
        raise ProgramError(shown or command, done.returncode, done.stderr or done.stdout)
    return done.stdout
