"""Run folder: everything that one run writes, and where other terminals find the run.

    runs/20260102-150405-digits/
      run.json         what was run, by which version (format 1); `ended` once it is over
      events.jsonl     what happened          decisions.jsonl  what was decided, and why
      samples.jsonl    sizes and progress over time
      logs/POD.log     output of every pod    checkpoints/JOB  checkpoints of jobs that name no place
      s/               sockets of the run's processes (or s.path, naming a place with a shorter path):
      s/control        where `edl get` and the others ask

As one archive it is a bug report (`edl bundle`).
"""

from __future__ import annotations

import errno
import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.errors import PermanentError
from master.api.host.file_ownership import ForeignUserError, check_path, make_folder
from master.api.host.unix_sockets import check_peer, make_socket_folder

RUN_FORMAT: Final = 1
"""Of run.json.  A newer `edl` reads older formats; an older one refuses a newer."""


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
    def tokens(self) -> Path:
        """The Secrets that pods mount: a folder for each pod that stands."""
        return self.root / "tokens"

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
    def sockets_named(self) -> Path:
        """Names the folder of the sockets when their paths would be too long here."""
        return self.root / "s.path"

    @property
    def sockets(self) -> Path:
        """Folder in which the run's processes listen: its owner's alone."""
        if self.sockets_named.exists():
            return Path(self.sockets_named.read_text(encoding="utf-8").strip())
        return self.root / "s"

    def log_of(self, pod: str) -> Path:
        return self.logs / f"{pod}.log"

    def control_socket(self) -> Path:
        """Path of the run's control socket."""
        return self.sockets / "control"

    def is_live(self) -> bool:
        """True if a process of this user, or of root, answers at the control socket."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                trial.settimeout(1.0)
                trial.connect(str(self.control_socket()))
                check_peer(trial)
        except (OSError, ForeignUserError):
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
    """The run folder cannot be made."""


def make_run_folder(parent: Path, name: str, *, described: Mapping[str, Any]) -> RunFolder:
    """A new folder `parent`/time-name with its run.json and sub-folders, for the owner's eyes only.

    Raises RunFolderError.
    """
    try:
        check_path(parent)
        return _make_run_folder(parent, name, described)
    except ForeignUserError as error:
        raise RunFolderError(f"no run folder is made in {parent}: {error}; see --run-dir") from error
    except OSError as error:
        raise RunFolderError(f"no run folder can be made in {parent}: {error.strerror}; see --run-dir") from error


def _make_run_folder(parent: Path, name: str, described: Mapping[str, Any]) -> RunFolder:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    make_folder(parent)
    slug = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:40] or "run"
    for number in range(1, 100):
        root = (parent / (f"{stamp}-{slug}" if number == 1 else f"{stamp}-{slug}-{number}")).absolute()
        try:
            root.mkdir(mode=0o700)
        except FileExistsError:
            continue
        break
    else:
        raise FileExistsError(errno.EEXIST, "there are a hundred runs of this second")
    folder = RunFolder(root=root)
    folder.logs.mkdir()
    folder.checkpoints.mkdir()
    folder.tokens.mkdir(mode=0o700)
    write_manifest(folder, described)
    sockets = make_socket_folder(root / "s")
    if sockets.parent != root:
        folder.sockets_named.write_text(f"{sockets}\n", encoding="utf-8")
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
