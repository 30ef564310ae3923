"""The per-user folder for what was built: `$EDL_CACHE_DIR`, else `$XDG_CACHE_HOME/edl`, else `~/.cache/edl`."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.errors import EtcdBuildError, UnusableEtcdError
from master.api.host.file_ownership import ForeignUserError, check_file, make_folder

LOCK_POLL_S: Final = 0.5
LOCK_BUDGET_S: Final = 900.0  # enough for another process to build etcd on a slow machine


def cache_folder(environ: Mapping[str, str]) -> Path:
    chosen = environ.get("EDL_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edl"


@contextmanager
def exclusive(folder: Path, report: Callable[[str], None], *, budget_s: float = LOCK_BUDGET_S) -> Iterator[None]:
    """Lock of the cache: one builder at a time across processes; the lock ends with its process.

    Raises EtcdBuildError when another one builds for too long, UnusableEtcdError when the folder cannot be written.
    """
    try:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
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
                report(f"waiting for another process that is building (lock: {folder / 'lock'})")
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


def record_digest(executable: Path) -> None:
    """Record the executable's SHA-256, which `verify` compares."""
    digest = _digest_of(executable)
    draft = executable.with_name(f".{executable.name}.{os.getpid()}.sha256")
    draft.write_text(f"{digest}\n", encoding="ascii")
    draft.replace(_digest_file_of(executable))


def verify(executable: Path) -> None:
    """Check that the executable has its recorded digest and that no other user can write it.

    Raises UnusableEtcdError.

    Without a recorded digest one is written: a user who can delete it could also forge it.
    """
    hint = f"Remove {executable.parent}, and it is made again"
    try:
        check_file(executable)
        if not _digest_file_of(executable).exists():
            record_digest(executable)
        recorded = _digest_file_of(executable).read_text(encoding="ascii", errors="replace").strip()
        if not hmac.compare_digest(recorded.encode(), _digest_of(executable).encode()):
            raise UnusableEtcdError(f"{executable} is not what was built: its SHA-256 is another one. {hint}")
    except ForeignUserError as error:
        raise UnusableEtcdError(f"{error}. {hint}") from error
    except OSError as error:
        raise UnusableEtcdError(f"{executable} cannot be checked: {error.strerror}. {hint}") from error


def _digest_file_of(executable: Path) -> Path:
    return executable.with_name(f"{executable.name}.sha256")


def _digest_of(executable: Path) -> str:
    with executable.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def move_into_place(made: Path, target: Path) -> None:
    """Move a finished folder to `target` atomically; both must be in one file system."""
    made.chmod(0o755)
    os.replace(made, target)  # noqa: PTH105  # the guarantee is os.replace's
