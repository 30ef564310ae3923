"""The report of a campaign as a file, and among the project's own reports."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.__main__ import ROOT, redraw

REPORTS: Final = ROOT / "docs" / "reports"


def write_report(document: dict[str, Any], files: Sequence[Path]) -> None:
    """Writes the document to each file; the table of benchmarks is written anew if one of them is a kept report."""
    for file in files:
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if any(file.parent == REPORTS for file in files):
        redraw()


def machine(load_before: float) -> dict[str, Any]:
    """What ran on what, and how busy that was."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    git = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    loads = [round(load, 1) for load in (load_before, os.getloadavg()[0])]
    return {"commit": git.stdout.strip() or "unknown", "cores": os.cpu_count(), "load_before_and_after": loads}
