"""Runs programs of this machine: to their end, within a budget, their output kept."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.errors import CommandError

BUDGET_S: Final = 120.0


def run(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    budget_s: float = BUDGET_S,
) -> str:
    """Standard output.  Raises CommandError when it fails or takes longer."""
    try:
        done = subprocess.run(
            command,
            env=environ,
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=budget_s,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(command, -1, f"did not end within {budget_s:.0f} s") from error
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stderr or done.stdout)
    return done.stdout
