"""Check the messages of the last commits: `python tools/check_commits.py`.

A subject names an area, has at most 72 characters, and a body says why: "planner: reserve capacity for gangs whole".
Whether it is imperative is for reviewers.  A checkout without history (a source distribution, a shallow clone) has
fewer commits to check, or none; that is no failure.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COUNT: Final = 20
LONGEST: Final = 72
AREA: Final = re.compile(r"[a-z][a-z0-9_/-]*(, [a-z][a-z0-9_/-]*)*: \S")


def find_problems(message: str) -> Iterator[str]:
    """What is wrong with one commit's message; nothing for a good one."""
    subject, _, rest = message.partition("\n")
    if not AREA.match(subject):
        yield "no area before the colon"
    if len(subject) > LONGEST:
        yield f"{len(subject)} characters, {LONGEST} are allowed"
    if not rest.strip():
        yield "no body that says why"


def last_messages(root: Path = ROOT) -> list[str]:
    """Messages of the last commits that are no merges, newest first; none where git or its history is missing."""
    if not (root / ".git").exists():
        return []
    command = ["git", "-C", str(root), "log", "--no-merges", f"--max-count={COUNT}", "--format=%B%x00"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [message.strip() for message in told.stdout.split("\0") if message.strip()]


def main() -> int:
    problems = [
        f"commit {message.splitlines()[0]!r}: {problem}"
        for message in last_messages()
        for problem in find_problems(message)
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
