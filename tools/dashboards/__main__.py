"""`python -m tools.dashboards` writes charts/edl/files/dashboards; with `--check` it ends with 1 if they are stale."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from tools.dashboards.gpus import GPUS
from tools.dashboards.job import JOB
from tools.dashboards.overview import OVERVIEW
from tools.dashboards.panels import to_json

FOLDER: Final = Path(__file__).resolve().parents[2] / "charts" / "edl" / "files" / "dashboards"
BOARDS: Final = (OVERVIEW, JOB, GPUS)


def make_files() -> dict[Path, str]:
    """Return the text of each dashboard by its path."""
    return {FOLDER / f"{board.uid}.json": f"{json.dumps(to_json(board), indent=1)}\n" for board in BOARDS}


def main() -> int:
    """Write the dashboards, or compare them."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is not what this makes")
    if parser.parse_args().check:
        stale = [path.name for path, text in make_files().items() if not path.exists() or path.read_text() != text]
        print(*(f"{name} is stale: python -m tools.dashboards" for name in stale), sep="\n")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path, text in make_files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
