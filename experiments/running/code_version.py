"""Version of the code that made a result: the commit, and a digest of uncommitted changes.

Results are compared only within one version.  Reports and results themselves do not count: a report changes no version.
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
EXCLUDED: Final = frozenset(["results", "demo", "reporting"])  # they make no results


def read_version() -> str:
    """Return the commit's first twelve digits, and a digest of the sources where they differ; `none-` without git."""
    commit = git("rev-parse", "--short=12", "HEAD") or "none"
    without = [f":(exclude,glob)**/{name}/**" for name in sorted(EXCLUDED)]
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
            if file.suffix in SUFFIXES and file.is_file() and not EXCLUDED & set(inside.parts):
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
    """Return facts about the machine, without its name."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": processor_name(),
        "python": platform.python_version(),
    }


def processor_name() -> str:
    """Return the processor's model; empty if it is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
