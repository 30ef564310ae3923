"""Contents of a checkpoint folder: HEAD, manifests, retired manifests, data files, and which of them are damaged.

`read_contents` reads all of it at once; `set_aside` moves what is not kept under `aside/`.  Nothing is decided here:
`resume` decides what a job resumes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

from master.api.checkpoints.checkpoint_files import read_manifest, read_retired
from master.api.checkpoints.manifest import Manifest, manifest_name, retired_name, try_manifest_id, try_retired_id
from master.api.checkpoints.storage import Storage
from master.api.errors import ManifestError, StorageAlteredError, StorageError, StorageMissingError
from master.api.identities import HistoryId, Lineage, ManifestId

HEAD: Final = "HEAD"
ASIDE: Final = "aside"
_REQUEST_DONE: Final = ".edl-followed"  # has a file for each history whose requested start was carried out completely
_DATA: Final = ("cut-", "model-", "replica-")
_LINEAGE: Final = re.compile(r"(?:manifest-|retired-|cut-|model-|replica-)(\d{1,18})-")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A damaged file of a checkpoint folder."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContents:
    """A folder as it was found.  `head` None: there is no HEAD, or it is among the damaged."""

    uri: str
    head: ManifestId | None
    manifests: Mapping[ManifestId, Manifest]
    retired: Mapping[ManifestId, Manifest]
    damaged: tuple[DamagedFile, ...]
    damaged_retired: tuple[DamagedFile, ...]  # never resumed from
    data_files: tuple[str, ...]
    is_request_done: bool  # the requested start was carried out: all else was set aside

    @property
    def known(self) -> Mapping[ManifestId, Manifest]:
        """All manifests that can be read, retired ones too."""
        return {**self.retired, **self.manifests}


def read_contents(storage: Storage, answer: RequestedStart | None = None) -> FolderContents:
    """Contents of the folder, and whether this request was carried out there.

    Raises StorageError where a file could not be read at all, damaged or not.
    """
    damaged: list[DamagedFile] = []
    head = _read_head(storage, damaged)
    manifests: dict[ManifestId, Manifest] = {}
    retired: dict[ManifestId, Manifest] = {}
    damaged_retired: list[DamagedFile] = []
    for name in storage.list("manifest-"):
        if (one := try_manifest_id(name)) is not None:
            try:
                manifests[one] = read_manifest(storage, one)
            except (ManifestError, StorageAlteredError, StorageMissingError) as error:
                damaged.append(DamagedFile(name=name, problem=problem_of(error)))
    for name in storage.list("retired-"):
        if (one := try_retired_id(name)) is not None:
            try:
                retired[one] = read_retired(storage, one)
            except (ManifestError, StorageAlteredError, StorageMissingError) as error:
                damaged_retired.append(DamagedFile(name=name, problem=problem_of(error)))
    data_files = tuple(name for prefix in _DATA for name in storage.list(prefix))
    return FolderContents(
        uri=storage.uri,
        head=head,
        manifests=manifests,
        retired=retired,
        damaged=tuple(damaged),
        damaged_retired=tuple(damaged_retired),
        data_files=data_files,
        is_request_done=answer is not None and storage.exists(done_marker_name(answer.history)),
    )


def _read_head(storage: Storage, damaged: list[DamagedFile]) -> ManifestId | None:
    try:
        return parse_head(storage.read(HEAD))
    except StorageMissingError:
        return None
    except (ManifestError, StorageAlteredError) as error:
        damaged.append(DamagedFile(name=HEAD, problem=problem_of(error)))
        return None


def problem_of(error: ManifestError | StorageError) -> str:
    return error.problem if isinstance(error, StorageError) else str(error)


def format_head(manifest_id: ManifestId) -> bytes:
    """The content of HEAD."""
    return f"{manifest_id}\n".encode()


def parse_head(data: bytes) -> ManifestId:
    """The inverse of `format_head`.  Raises ManifestError for every other content."""
    try:
        found = ManifestId(data.decode("ascii").removesuffix("\n"))
        manifest_name(found)
    except (UnicodeDecodeError, ManifestError):
        raise ManifestError("", f"holds {data[:40]!r}, no manifest's id: it was cut short or altered") from None
    if format_head(found) != data:
        raise ManifestError("", f"holds {data[:40]!r}, not one line: it was cut short or altered")
    return found


def highest_lineage(storage: Storage) -> Lineage:
    """The highest lineage in the names of all files, readable or not; 0: there is none."""
    return max(map(_lineage_of, storage.list()), default=Lineage(0))


def _lineage_of(name: str) -> Lineage:
    """The lineage in a file's name; 0: it has none."""
    match = _LINEAGE.match(name)
    return Lineage(int(match[1]) if match else 0)


def write_order(manifest: Manifest) -> tuple[int, int, int]:
    """Sorts the manifests of one folder in the order in which they were written."""
    return (manifest.lineage, manifest.term, manifest.step)


def set_aside(
    storage: Storage, keep: Manifest | None, history: HistoryId, *, above: Lineage, check: Callable[[], None]
) -> None:
    """Move everything except this manifest and its files to `aside/HISTORY/`; nothing is deleted or replaced.

    That becomes a checkpoint folder of its own, with all its names.  HEAD names the manifest.  May be repeated, also
    late: files of a lineage above `above` are newer and stay, as does a HEAD that names one.  `check` is called before
    each step, and raises once another master may write here.
    """
    kept = {manifest_name(keep.id), *(file.name for file in keep.files)} if keep else set()
    target_folder = f"{ASIDE}/{history}"
    check()
    if keep is not None and retired_name(keep.id) in storage.list("retired-"):
        storage.move(retired_name(keep.id), manifest_name(keep.id))
    _set_head(storage, keep, f"{target_folder}/{HEAD}", above, check)
    for prefix in ("manifest-", "retired-", *_DATA):
        for name in storage.list(prefix):
            if name not in kept and _lineage_of(name) <= above:
                check()
                storage.move(name, f"{target_folder}/{name}")
    check()
    storage.write_file(done_marker_name(history), [b"All else was set aside.\n"])


def _set_head(storage: Storage, keep: Manifest | None, target: str, above: Lineage, check: Callable[[], None]) -> None:
    """Point HEAD at the kept manifest; move the old HEAD to `target`."""
    if storage.exists(HEAD):
        head = storage.read(HEAD)
        with suppress(ManifestError):
            if _lineage_of(manifest_name(parse_head(head))) > above:
                return
        check()
        if keep is None:
            storage.move(HEAD, _unused(storage, target))
        elif head != format_head(keep.id) or not storage.exists(target):
            storage.write_file(_unused(storage, target), [head])
    if keep is not None:
        check()
        storage.write_file(HEAD, [format_head(keep.id)])


def done_marker_name(history: HistoryId) -> str:
    return f"{_REQUEST_DONE}/{history}"


def _unused(storage: Storage, name: str) -> str:
    """The name, or the first one behind it that no file has."""
    behind = (f"{name}-{number}" for number in count(2))
    return name if not storage.exists(name) else next(other for other in behind if not storage.exists(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStart:
    """Requested start of a job; valid until a checkpoint of `history` is committed."""

    manifest: ManifestId | None  # None: start from zero
    history: HistoryId
