"""The per-user folder for what was built: `$EDL_CACHE_DIR`, else `$XDG_CACHE_HOME/edl`, else `~/.cache/edl`."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from master.errors import EtcdBuildError, UnusableEtcdError

LOCK_POLL_S: Final = 0.5
LOCK_BUDGET_S: Final = 900.0  # another one's build, on a slow machine


def cache_folder(environ: Mapping[str, str]) -> Path:
    chosen = environ.get("EDL_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edl"


@contextmanager
def exclusive(folder: Path, say: Callable[[str], None], *, budget_s: float = LOCK_BUDGET_S) -> Iterator[None]:
    """One builder at a time, also among processes; the lock ends with its process.

    Raises EtcdBuildError when another one builds for too long, UnusableEtcdError when the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise UnusableEtcdError(
            f"{folder} cannot be written ({error.strerror}): name another with EDL_CACHE_DIR"
        ) from error
    with lock:
        deadline_s = time.monotonic() + budget_s
        waited = False
        while not _try_lock(lock.fileno()):
            if not waited:
                say(f"waiting for another process that is building (lock: {folder / 'lock'})")
            waited = True
            if time.monotonic() > deadline_s:
                raise EtcdBuildError(f"{folder / 'lock'} was held for {budget_s:.0f} s. Is a build hanging?")
            time.sleep(LOCK_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def move_into_place(made: Path, target: Path) -> None:
    """`target` is the whole of it or absent, whatever happens on the way.  Both lie in one file system."""
    made.chmod(0o755)
    os.replace(made, target)  # noqa: PTH105  # the guarantee is os.replace's
