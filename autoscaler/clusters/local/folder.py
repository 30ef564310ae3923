"""The folder of one run: everything that it wrote, and the way for other terminals to find it.

    runs/20260102-150405-digits/
      run.json         what was run, by which version (format 1); `ended` once it is over
      events.jsonl     what happened          decisions.jsonl  what was decided, and why
      samples.jsonl    sizes and progress over time
      logs/POD.log     output of every pod    checkpoints/JOB  checkpoints of jobs that name no place
      control.sock     where `edl get` and the others ask (or control.path, naming a shorter place)

As one archive it is a bug report (`edl bundle`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.errors import PermanentError

RUN_FORMAT: Final = 1
"""Of run.json.  A newer `edl` reads older formats; an older one refuses a newer."""

_LONGEST_SOCKET_PATH_BYTES: Final = 104
"""AF_UNIX takes 107 bytes on Linux and 103 on other systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Paths below one run's folder."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "run.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def token(self) -> Path:
        """The secret that the run's processes share."""
        return self.root / "token"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def decisions(self) -> Path:
        return self.root / "decisions.jsonl"

    @property
    def samples(self) -> Path:
        return self.root / "samples.jsonl"

    @property
    def socket_name(self) -> Path:
        """Names the control socket when its path would be too long here."""
        return self.root / "control.path"

    def log_of(self, pod: str) -> Path:
        return self.logs / f"{pod}.log"

    def control_socket(self) -> Path:
        """Where the run's control socket is."""
        if self.socket_name.exists():
            return Path(self.socket_name.read_text(encoding="utf-8").strip())
        return self.root / "control.sock"

    def is_live(self) -> bool:
        """Whether somebody answers at the control socket."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                trial.settimeout(1.0)
                trial.connect(str(self.control_socket()))
        except OSError:
            return False
        return True

    def read_manifest(self) -> Mapping[str, Any]:
        """run.json.  Raises OSError or ValueError: this is no run folder, or one of a newer version."""
        content = json.loads(self.manifest.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not isinstance(content.get("format"), int):
            raise ValueError(f"{self.manifest} is no run file")  # noqa: TRY004 - the content is wrong, not the caller
        if content["format"] > RUN_FORMAT:
            raise ValueError(f"{self.manifest} has format {content['format']}; this edl reads up to {RUN_FORMAT}")
        return content


class RunFolderError(PermanentError):
    """The run has no place to write to."""


def make_run_folder(parent: Path, name: str, *, described: Mapping[str, Any]) -> RunFolder:
    """A new folder `parent`/time-name with its run.json, token and sub-folders, for the owner's eyes only.

    Raises RunFolderError.
    """
    try:
        return _make_run_folder(parent, name, described)
    except OSError as error:
        raise RunFolderError(f"no run folder can be made in {parent}: {error.strerror}; see --run-dir") from error


def _make_run_folder(parent: Path, name: str, described: Mapping[str, Any]) -> RunFolder:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    slug = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:40] or "run"
    for number in range(1, 100):
        root = (parent / (f"{stamp}-{slug}" if number == 1 else f"{stamp}-{slug}-{number}")).absolute()
        try:
            root.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        break
    else:
        raise FileExistsError(errno.EEXIST, "there are a hundred runs of this second")
    folder = RunFolder(root=root)
    folder.logs.mkdir()
    folder.checkpoints.mkdir()
    with os.fdopen(os.open(folder.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as token:
        token.write(secrets.token_hex(32))
    write_manifest(folder, described)
    if len(os.fsencode(root / "control.sock")) >= _LONGEST_SOCKET_PATH_BYTES:
        short = Path(tempfile.mkdtemp(prefix="edl-")) / "control.sock"
        folder.socket_name.write_text(f"{short}\n", encoding="utf-8")
    return folder


def write_manifest(folder: RunFolder, described: Mapping[str, Any]) -> None:
    """Replace run.json in one step."""
    draft = folder.manifest.with_suffix(".new")
    draft.write_text(json.dumps({"format": RUN_FORMAT, **described}, indent=2) + "\n", encoding="utf-8")
    draft.replace(folder.manifest)


def find_runs(parent: Path) -> Iterator[RunFolder]:
    """The run folders in `parent`, newest first."""
    if not parent.is_dir():
        return
    roots = (path.parent for path in parent.glob("*/run.json"))
    for root in sorted(roots, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True):
        yield RunFolder(root=root)
