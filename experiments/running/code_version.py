"""Which code made a result: the commit, and a digest of what differs from it.

Two results belong together only if their version is the same.  The commit alone does not say that: a tree with changes
that are not committed yet makes other results.  What only tells of results, and results themselves, are left out of
both: a report changes no version.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("autoscaler", "experiments")
SUFFIXES: Final = frozenset([".py", ".yaml", ".csv", ".json"])
APART: Final = frozenset(["results", "demo", "reporting"])  # results themselves, and what only tells of them


def read_version() -> str:
    """Return the commit's first twelve digits, and a digest of the sources where they differ; `none-` without git."""
    commit = git("rev-parse", "--short=12", "HEAD") or "none"
    without = [f":(exclude,glob)**/{name}/**" for name in sorted(APART)]
    if commit != "none" and git("status", "--porcelain", "--untracked-files=all", "--", *SOURCES, *without) == "":
        return commit
    return f"{commit}-{digest_sources()}"


@cache
def loaded_version() -> str:
    """Return the version that this process found at its first call: that of the code which it has loaded."""
    return read_version()


def digest_sources() -> str:
    """Return ten digits over the names and contents of the sources that make results."""
    digest = hashlib.sha256()
    for source in SOURCES:
        for file in sorted((ROOT / source).rglob("*")):
            inside = file.relative_to(ROOT)
            if file.suffix in SUFFIXES and file.is_file() and not APART & set(inside.parts):
                digest.update(str(inside).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:10]


def git(*arguments: str) -> str | None:
    """Return git's answer; None where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def describe_machine() -> dict[str, str | int]:
    """Return what the machine is, without its name."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": processor_name(),
        "python": platform.python_version(),
    }


def processor_name() -> str:
    """Return the processor's model; empty where it is not told."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
