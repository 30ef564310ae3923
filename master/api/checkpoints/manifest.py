"""Manifest of a checkpoint: its content and its files; files without a manifest are not a checkpoint (rules 22, 23).

The manifest is written last, under its own id, by atomic rename; it is committed once the store's `head` names it.
It carries a digest of itself and its version, so a torn or altered one is found before anything is loaded from it.

Skew rule: a manifest has one version number, 1 so far.  A reader takes the version that it writes and refuses a newer
one with the advice to upgrade.  Any change of a field is a new version (`format_version`).

Pure.  Reading and writing: `checkpoint_files`.  Reading a whole checkpoint without a job: `audit`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from master.api.document import from_plain, parse_json, to_plain
from master.api.errors import DocumentError, ManifestError
from master.api.format_version import check_version
from master.api.identities import DatasetSpec, HistoryId, Lineage, ManifestId, TableSpec, Term
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import StateId
from master.api.positions import PositionSet

_FORMAT: Final = "edl-manifest"
MANIFEST_VERSION: Final = 1
_NAME: Final = re.compile(r"manifest-(?P<id>[A-Za-z0-9][A-Za-z0-9._-]*)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One checkpoint.  `data` is the data state: the positions that every file has applied (M1).

    `history` identifies all checkpoints since the job's start from zero, across masters and roll-backs; `founded` is
    its first lineage.  Nothing of another history is ever deleted (M11).
    """

    id: ManifestId
    parent: ManifestId | None  # head when this commit began
    lineage: Lineage
    term: Term
    data: PositionSet
    quarantine: PositionSet
    files: tuple[FileRecord, ...]
    dataset: DatasetSpec
    tables: tuple[TableSpec, ...]
    bucket_count: int
    step: int
    created_at_s: float  # Unix time, for people; only chains that are broken off are compared by it
    history: HistoryId
    founded: Lineage
    state: StateId | None = None  # of a group's replicas (rule 65); None: of another kind of job

    @property
    def is_complete(self) -> bool:
        """True if everything is trained or quarantined, or a script has stopped: END follows this head (32, 97)."""
        is_stopped = self.state is not None and self.state.is_stopped
        return is_stopped or self.data | self.quarantine == self.dataset.everything


def manifest_name(manifest_id: ManifestId) -> str:
    """The file's name in the checkpoint folder.  Raises ManifestError for an id that makes no file name."""
    name = f"manifest-{manifest_id}.json"
    if not _NAME.fullmatch(name):
        raise ManifestError("id", f"{manifest_id!r} has other characters than letters, digits, '.', '_' and '-'")
    return name


def try_manifest_id(name: str) -> ManifestId | None:
    """The id in a file's name; None when the file is not a manifest."""
    match = _NAME.fullmatch(name)
    return ManifestId(match["id"]) if match else None


def retired_name(manifest_id: ManifestId) -> str:
    """File name of a retired manifest: a newer one has replaced it, and it is kept for a while."""
    return manifest_name(manifest_id).replace("manifest-", "retired-", 1)


def try_retired_id(name: str) -> ManifestId | None:
    """The id in the name of a retired manifest; None when the file is none."""
    return try_manifest_id(name.replace("retired-", "manifest-", 1)) if name.startswith("retired-") else None


def encode_manifest(manifest: Manifest) -> bytes:
    """The file's content."""
    body = to_plain(manifest)
    document = {"format": _FORMAT, "version": MANIFEST_VERSION, "digest": _digest(body), "manifest": body}
    return _written(document)


def _written(document: Mapping[str, Any]) -> bytes:
    """The file's bytes; every one is covered by the check, white space and doubled fields too."""
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_manifest(data: bytes) -> Manifest:
    """The inverse of `encode_manifest`.  Raises ManifestError, naming the field."""
    try:
        document = parse_json(data)
        _check_envelope(document)
        manifest = from_plain(Manifest, document["manifest"])
        if _written(document) != data:
            raise ManifestError("", "is not written as EDL writes it: the manifest was altered")  # noqa: TRY301
        return manifest  # noqa: TRY300  one way out for all that is refused
    except ManifestError:
        raise
    except DocumentError as error:
        raise ManifestError(error.field, error.problem) from error


def _check_envelope(document: Any) -> None:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ManifestError("format", f"is not {_FORMAT!r}: this file is not a manifest")
    check_version("manifest", document.get("version"), known=MANIFEST_VERSION)
    for field in {"format", "version", "digest", "manifest"}.symmetric_difference(document):
        raise ManifestError(field, "is missing" if field not in document else "is unknown")
    if document["digest"] != _digest(document["manifest"]):
        raise ManifestError("digest", "does not match the content: the manifest was truncated or altered")


def _digest(body: Any) -> str:
    """Digest of version and content, independent of white space."""
    signed = {"version": MANIFEST_VERSION, "manifest": body}
    return hashlib.sha256(json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
