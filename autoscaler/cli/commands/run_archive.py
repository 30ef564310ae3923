"""Archive of a run's folder for a bug report, without secrets (`redaction`): what `edl bundle` writes."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import yaml

from autoscaler.cli.commands.about import list_versions
from autoscaler.cli.commands.redaction import Redactor, secrets_in, secrets_of
from autoscaler.clusters.local.run_files.run_folder import RunFolder

_NOT_BUNDLED: Final = frozenset({"tokens", "s", "s.path", "etcd"})
"""Secrets, sockets, and etcd's database."""

_IN_MEMORY_BYTES: Final = 8 << 20


def make_redactor(run: RunFolder) -> Redactor:
    """One that knows the run's secrets.  Raises OSError."""
    return Redactor(_known_secrets(run))


def write_archive(run: RunFolder, target: Path, redactor: Redactor) -> None:
    """Pack the run's folder into `target`, readable by its owner alone.  Raises OSError."""
    with _open_for_owner(target) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in _bundled(run.root):
            _add(archive, run.root, path, redactor)
        _add_text(archive, f"{run.root.name}/versions.txt", "\n".join(list_versions()) + "\n")


def _known_secrets(run: RunFolder) -> dict[str, str]:
    """Secrets by name: in the jobs' files, in the environment (pods inherit that of `edl run`), and tokens of jobs."""
    found = secrets_of(os.environ)
    try:
        texts = [str(text) for text in run.read_manifest().get("files", {}).values()]
    except (OSError, ValueError, AttributeError):
        texts = []
    for text in texts:
        try:
            found |= secrets_in(list(yaml.safe_load_all(text)))
        except (yaml.YAMLError, RecursionError):
            continue  # its text is still searched for names and token formats
    for path in run.tokens.glob("*/token"):
        secret, _, _ = path.parent.name.partition(".")
        found[f"token of {secret}"] = path.read_text(errors="replace")
    return found


def _bundled(root: Path) -> Iterator[Path]:
    """Plain files in order; links are left out, since they could lead anywhere."""
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root).parts
        folders[:] = sorted(name for name in folders if inside or name not in _NOT_BUNDLED)
        for name in sorted(names):
            path = Path(folder) / name
            is_checkpoint_file = inside[:1] == ("checkpoints",) and not name.endswith(".json")
            if (inside or name not in _NOT_BUNDLED) and not is_checkpoint_file and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _add(archive: tarfile.TarFile, root: Path, path: Path, redactor: Redactor) -> None:
    name = str(path.relative_to(root))
    with (
        os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source,
        tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as clean,
    ):
        for piece in redactor.redacted(source, name):
            clean.write(piece)
        entry = tarfile.TarInfo(f"{root.name}/{name}")
        entry.size, entry.mode, entry.mtime = clean.tell(), 0o600, int(os.fstat(source.fileno()).st_mtime)
        clean.seek(0)
        archive.addfile(entry, clean)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o600
    archive.addfile(entry, io.BytesIO(text.encode()))


def _open_for_owner(target: Path) -> BinaryIO:
    """Open the file empty and readable by its owner alone, whatever its mode was.  Raises OSError."""
    file = os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb")
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a device such as /dev/null keeps its mode
            os.fchmod(file.fileno(), 0o600)
            file.truncate()
    except OSError:
        file.close()
        raise
    return file


def redaction_lines(redactor: Redactor) -> Iterator[str]:
    """Names of the redacted secrets and their files, without values."""
    places: dict[str, list[str]] = defaultdict(list)
    for (name, file), count in sorted(redactor.counts.items()):
        places[name].append(f"{file} ({count})")
    for name, files in places.items():
        yield f"edl: redacted {name} in {', '.join(files)}"
