"""What a job that begins finds in its checkpoint folder, and what it goes on from (M8, M11, ADR 0402).

The problem: a job whose store knows nothing of it is a new one, or one that lost its store; only the folder tells.
Taking a folder that cannot be read for an empty one would train from 0 over weeks of work.  So the job goes on from
what HEAD names, begins anew only where nothing is there, and otherwise begins nothing: it names the file, what can be
read beside it, and how somebody answers.  The answer holds for one history, until something of it is committed: a
master that starts again does not begin anew once more, and damage that comes later is told as any other.

Not here: the bytes of the data files (`verification`), what a job with a store goes on from (`master.process`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

from master.api.checkpoints.manifest import Manifest, manifest_name, retired_name, try_manifest_id, try_retired_id
from master.api.checkpoints.storage import Storage, check_file, read_manifest, read_retired
from master.api.errors import (
    ManifestError,
    NoFallbackError,
    StorageAlteredError,
    StorageError,
    StorageMissingError,
    UnreadableCheckpointError,
)
from master.api.identities import HistoryId, Lineage, ManifestId

HEAD: Final = "HEAD"
ANEW: Final = "anew"
"""The answer that begins anew; every other one is the id of a manifest."""

ASIDE: Final = "aside"
_FOLLOWED: Final = ".edl-followed"  # has a file for each history whose answer was followed to the end
_DATA: Final = ("cut-", "model-")
_LINEAGE: Final = re.compile(r"(?:manifest-|retired-|cut-|model-)(\d{1,18})-")
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What somebody decided about a folder.  It counts until something of `history` is committed."""

    manifest: ManifestId | None  # None: begin anew
    history: HistoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that is there and does not say what it should."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A folder as it was found.  `head` None: there is no HEAD, or it is among the damaged."""

    uri: str
    head: ManifestId | None
    manifests: Mapping[ManifestId, Manifest]
    retired: Mapping[ManifestId, Manifest]
    damaged: tuple[Damage, ...]
    damaged_retired: tuple[Damage, ...]  # nothing is gone on from them
    data_files: tuple[str, ...]
    was_followed: bool  # the answer that is asked about: all else was set aside then

    @property
    def known(self) -> Mapping[ManifestId, Manifest]:
        """All that can be read."""
        return {**self.retired, **self.manifests}


def look_into(storage: Storage, answer: Answer | None = None) -> Contents:
    """What stands in the folder, and whether the answer was followed there.

    Raises StorageError where a file could not be read at all, damaged or not.
    """
    damaged: list[Damage] = []
    head = _read_head(storage, damaged)
    manifests: dict[ManifestId, Manifest] = {}
    retired: dict[ManifestId, Manifest] = {}
    damaged_retired: list[Damage] = []
    for name in storage.list("manifest-"):
        if (one := try_manifest_id(name)) is not None:
            try:
                manifests[one] = read_manifest(storage, one)
            except (ManifestError, StorageAlteredError, StorageMissingError) as error:
                damaged.append(Damage(name=name, problem=_problem(error)))
    for name in storage.list("retired-"):
        if (one := try_retired_id(name)) is not None:
            try:
                retired[one] = read_retired(storage, one)
            except (ManifestError, StorageAlteredError, StorageMissingError) as error:
                damaged_retired.append(Damage(name=name, problem=_problem(error)))
    data_files = tuple(name for prefix in _DATA for name in storage.list(prefix))
    return Contents(
        uri=storage.uri,
        head=head,
        manifests=manifests,
        retired=retired,
        damaged=tuple(damaged),
        damaged_retired=tuple(damaged_retired),
        data_files=data_files,
        was_followed=answer is not None and storage.exists(_followed_name(answer.history)),
    )


def _read_head(storage: Storage, damaged: list[Damage]) -> ManifestId | None:
    try:
        return parse_head(storage.read(HEAD))
    except StorageMissingError:
        return None
    except (ManifestError, StorageAlteredError) as error:
        damaged.append(Damage(name=HEAD, problem=_problem(error)))
        return None


def _problem(error: ManifestError | StorageError) -> str:
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
    """Of all files that stand there, by their names, readable or not; 0 where there is none."""
    return max(map(_lineage_of, storage.list()), default=Lineage(0))


def _lineage_of(name: str) -> Lineage:
    """Of what a file's name says; 0 where it says nothing."""
    match = _LINEAGE.match(name)
    return Lineage(int(match[1]) if match else 0)


def parse_answer(text: str, history: HistoryId) -> Answer:
    """`anew`, or a manifest's id.  Raises ManifestError."""
    if text == ANEW:
        return Answer(manifest=None, history=history)
    manifest_name(ManifestId(text))
    return Answer(manifest=ManifestId(text), history=history)


# ---- the choice -----------------------------------------------------------------------------------------------------


def choose_start(contents: Contents, answer: Answer | None, *, now_s: float) -> Manifest | None:
    """The manifest to go on from; None: the job begins anew.

    Raises UnreadableCheckpointError, with all that somebody needs to answer, where the folder does not tell.
    """
    if is_heeded(contents, answer):
        assert answer is not None
        return choose_answered(contents, answer, now_s=now_s)
    if contents.damaged:
        first = contents.damaged[0]
        raise _unreadable(contents, first.name, f"cannot be read: {first.problem}", now_s)
    if contents.head is not None:
        if contents.head not in contents.known:
            story = f"is not in {contents.uri}, and HEAD names it as the last checkpoint"
            raise _unreadable(contents, manifest_name(contents.head), story, now_s)
        if later := overtaken_by(contents.known[contents.head], contents.manifests, contents.retired):
            story = f"names {contents.head}, but what {later} shows was committed after it: HEAD is an older copy"
            raise _unreadable(contents, HEAD, story, now_s, NoFallbackError)
        return contents.known[contents.head]
    left = _left_over(contents)
    if not contents.manifests:
        if left:
            story = f"is not in {contents.uri}, but {left} of checkpoints are"
            raise _unreadable(contents, "manifest-*.json", story, now_s)
        return None
    only, *others = contents.manifests.values()
    if not others and only.parent is None and not _retired_names(contents):
        return only  # its master ended between the first commit and HEAD
    beside = f", and {left}" if left else ""
    story = (
        f"is not in {contents.uri}, but {len(contents.manifests)} manifests are{beside}: which was last is not known"
    )
    raise _unreadable(contents, HEAD, story, now_s)


def choose_answered(contents: Contents, answer: Answer, *, now_s: float) -> Manifest | None:
    """The manifest that was asked for; None: the job begins anew.  Raises UnreadableCheckpointError."""
    return None if answer.manifest is None else _named(contents, answer.manifest, now_s)


def overtaken_by(
    named: Manifest, manifests: Mapping[ManifestId, Manifest], retired: Mapping[ManifestId, Manifest]
) -> str:
    """The name of a file which proves that a checkpoint was committed after the one that HEAD names; empty: none does.

    A manifest is retired only once HEAD names a newer one, and it names as parent what was committed before it.  One
    newer manifest whose parent is the one that HEAD names proves nothing: its master may have ended before the commit.
    """
    if named.id not in manifests and named.id in retired:
        return retired_name(named.id)
    known = {**retired, **manifests}
    newer = (one for one in known.values() if age(one) > age(named) and _may_follow(one, named, known))
    proofs = (one for one in newer if one.id not in manifests or not _may_be_uncommitted(one, named, known))
    found = min(proofs, key=age, default=None)
    return "" if found is None else (manifest_name if found.id in manifests else retired_name)(found.id)


def _may_be_uncommitted(one: Manifest, named: Manifest, known: Mapping[ManifestId, Manifest]) -> bool:
    """Its master may have ended before the commit, or have been told that the folder is another job's.

    The latter is the first of its history: it went on from a checkpoint before the one that HEAD names by then.
    """
    if one.parent in (named.id, None):
        return True
    before = known.get(one.parent)
    return before is not None and one.history != named.history == before.history and age(before) < age(named)


def _may_follow(one: Manifest, named: Manifest, known: Mapping[ManifestId, Manifest]) -> bool:
    """False: it is another job's, which went on from somewhere else in the same folder.

    Where the chain of another history is broken off, what was written before the named one was not committed after it.
    """
    if one.history == named.history:
        return True
    passed, parent = {one.id}, one.parent
    while parent is not None and parent in known and parent not in passed:
        passed.add(parent)
        parent = known[parent].parent
    return named.id in passed or (parent is not None and one.created_at_s > named.created_at_s)


def age(manifest: Manifest) -> tuple[int, int, int]:
    """Sorts the manifests of one folder in the order in which they were written."""
    return (manifest.lineage, manifest.term, manifest.step)


def is_heeded(contents: Contents, answer: Answer | None) -> bool:
    """Whether the answer still has to be followed: nothing was committed yet since it was.

    A manifest of its history says that something was.  So does every change of a folder in which it was followed to the
    end, readable or not; data files alone do not, since a master that ends before its first commit leaves them.
    """
    if answer is None or any(one.history == answer.history for one in contents.known.values()):
        return False
    return not contents.was_followed or _is_as_set_aside(contents, answer)


def _is_as_set_aside(contents: Contents, answer: Answer) -> bool:
    kept = set() if answer.manifest is None else {answer.manifest}
    is_changed = contents.damaged or contents.damaged_retired or contents.retired
    return not is_changed and contents.head == answer.manifest and set(contents.manifests) == kept


def _named(contents: Contents, wanted: ManifestId, now_s: float) -> Manifest:
    found = contents.known.get(wanted)
    if found is None:
        story = f"is asked for, and cannot be read in {contents.uri}"
        raise _unreadable(contents, f"manifest {wanted}", story, now_s, NoFallbackError)
    return found


def _unreadable(
    contents: Contents,
    name: str,
    story: str,
    now_s: float,
    kind: type[UnreadableCheckpointError] = UnreadableCheckpointError,
) -> UnreadableCheckpointError:
    newest = sorted(contents.known.values(), key=age, reverse=True)
    told = "; ".join(tell_manifest(one, now_s=now_s) for one in newest[:_SHOWN])
    beside = f"Readable beside it: {told}." if told else "No manifest can be read beside it."
    others = [damage.name for damage in contents.damaged if damage.name != name]
    more = f" Not readable either: {', '.join(others[:_SHOWN])}." if others else ""
    ways = (
        f"--from {newest[0].id if newest else 'MANIFEST'} or --begin-anew for `edl run`, EDL_CHECKPOINT_START=MANIFEST "
        "or =anew for a script that runs alone, spec.checkpoint.start on Kubernetes"
    )
    return kind(
        name,
        f"{story}. Nothing was started, changed or deleted. {beside}{more} Bring the folder {contents.uri} back as it "
        f"was (`edl data verify {contents.uri}` reads every byte), or say what to go on from: {ways}",
    )


def tell_manifest(manifest: Manifest, *, now_s: float) -> str:
    """A checkpoint in one phrase, for people."""
    total = manifest.dataset.size * manifest.dataset.epochs
    age_s = max(0, int(now_s - manifest.created_at_s))
    age = f"{age_s} s" if age_s < 120 else f"{age_s // 60} min" if age_s < 7200 else f"{age_s // 3600} h"
    return f"{manifest.id} (step {manifest.step:,}, {len(manifest.data):,} of {total:,} samples, {age} old)"


def _left_over(contents: Contents) -> str:
    """What else of checkpoints stands there; empty: nothing."""
    found = (("data file", contents.data_files), ("retired manifest", _retired_names(contents)))
    return " and ".join(_counted(kind, names) for kind, names in found if names)


def _retired_names(contents: Contents) -> tuple[str, ...]:
    return (*map(retired_name, contents.retired), *(damage.name for damage in contents.damaged_retired))


def _counted(kind: str, names: Iterable[str]) -> str:
    names = tuple(names)
    return f"{len(names)} {kind}{'' if len(names) == 1 else 's'} ({names[0]}{', ...' if len(names) > 1 else ''})"


# ---- its files ------------------------------------------------------------------------------------------------------


def check_files_are_there(
    storage: Storage, manifest: Manifest, contents: Contents, *, is_answer: bool, now_s: float
) -> None:
    """Each data file has its length at least; whoever loads it compares the digests.

    Of a job that has nothing left to train nobody need load it, so there the digests are compared here: it would be
    said to be complete with a model that cannot be read.  Raises UnreadableCheckpointError, naming the file;
    NoFallbackError where the checkpoint is what somebody asked for.
    """
    for file in manifest.files:
        try:
            if manifest.is_complete:
                check_file(storage, file)
            elif file.size_bytes:
                storage.read(file.name, offset=file.size_bytes - 1, length_bytes=1)
        except (StorageMissingError, StorageAlteredError) as error:
            story = f"of checkpoint {manifest.id} cannot be read: {error.problem}"
            kind = NoFallbackError if is_answer else UnreadableCheckpointError
            raise _unreadable(contents, file.name, story, now_s, kind) from error


def set_aside(
    storage: Storage, keep: Manifest | None, history: HistoryId, *, above: Lineage, check: Callable[[], None]
) -> None:
    """Everything but this manifest and its files stands under `aside/HISTORY/`; nothing is deleted or replaced.

    What was there is a checkpoint folder of its own, with all its names.  HEAD names the manifest.  May be repeated,
    also late: what is of a lineage above `above` was written since and stays, and so does HEAD where it names that.
    `check` is called before each step, and raises once somebody else may write here.
    """
    kept = {manifest_name(keep.id), *(file.name for file in keep.files)} if keep else set()
    away = f"{ASIDE}/{history}"
    check()
    if keep is not None and retired_name(keep.id) in storage.list("retired-"):
        storage.move(retired_name(keep.id), manifest_name(keep.id))
    _set_head(storage, keep, f"{away}/{HEAD}", above, check)
    for prefix in ("manifest-", "retired-", *_DATA):
        for name in storage.list(prefix):
            if name not in kept and _lineage_of(name) <= above:
                check()
                storage.move(name, f"{away}/{name}")
    check()
    storage.write_file(_followed_name(history), [b"All else was set aside.\n"])


def _set_head(storage: Storage, keep: Manifest | None, away: str, above: Lineage, check: Callable[[], None]) -> None:
    """HEAD names what is kept; what it named before stands under `away`."""
    if storage.exists(HEAD):
        head = storage.read(HEAD)
        with suppress(ManifestError):
            if _lineage_of(manifest_name(parse_head(head))) > above:
                return
        check()
        if keep is None:
            storage.move(HEAD, _unused(storage, away))
        elif head != format_head(keep.id) or not storage.exists(away):
            storage.write_file(_unused(storage, away), [head])
    if keep is not None:
        check()
        storage.write_file(HEAD, [format_head(keep.id)])


def _followed_name(history: HistoryId) -> str:
    return f"{_FOLLOWED}/{history}"


def _unused(storage: Storage, name: str) -> str:
    """The name, or the first one behind it that no file has."""
    behind = (f"{name}-{number}" for number in count(2))
    return name if not storage.exists(name) else next(other for other in behind if not storage.exists(other))


def find_start(storage: Storage, answer: Answer | None, *, now_s: float) -> Manifest | None:
    """The manifest that a job without a store goes on from; None: it begins anew.  Nothing is changed.

    Raises UnreadableCheckpointError as `choose_start` and `check_files_are_there`, StorageError for an unusable folder.
    """
    contents = look_into(storage, answer)
    chosen = choose_start(contents, answer, now_s=now_s)
    if chosen is not None:
        check_files_are_there(storage, chosen, contents, is_answer=is_heeded(contents, answer), now_s=now_s)
    return chosen
