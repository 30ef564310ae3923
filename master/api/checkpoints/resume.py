"""Resume: the checkpoint from which a starting job continues (M8, M11, ADR 0402).

The problem: if the store has no entry of a job, the job is new or its store was lost; only the folder can decide.
Treating an unreadable folder as empty would discard weeks of training.  So the job resumes from HEAD, starts from
zero only in an empty folder, and otherwise refuses: the error names the file, the readable alternatives and how to
request a start.  A requested start is valid for one history until its first commit, so a restarted master does not
start from zero again, and later damage is reported as any other.

Not here: the bytes of the data files (`verification`), what a job with a store resumes from (`master.process`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from master.api.checkpoints.checkpoint_files import check_file
from master.api.checkpoints.folder_contents import HEAD, FolderContents, RequestedStart, read_contents, write_order
from master.api.checkpoints.manifest import Manifest, manifest_name, retired_name
from master.api.checkpoints.storage import Storage
from master.api.errors import NoFallbackError, StorageAlteredError, StorageMissingError, UnreadableCheckpointError
from master.api.identities import HistoryId, ManifestId

FRESH: Final = "fresh"
"""The request to start from zero; any other request is a manifest id."""

_SHOWN: Final = 5


def parse_requested_start(text: str, history: HistoryId) -> RequestedStart:
    """`fresh`, or a manifest's id.  Raises ManifestError."""
    if text == FRESH:
        return RequestedStart(manifest=None, history=history)
    manifest_name(ManifestId(text))
    return RequestedStart(manifest=ManifestId(text), history=history)


# ---- the choice -----------------------------------------------------------------------------------------------------


def choose_start(contents: FolderContents, answer: RequestedStart | None, *, now_s: float) -> Manifest | None:
    """Manifest to resume from; None: start from zero.

    Raises UnreadableCheckpointError, with the options for the user, if the folder is ambiguous.
    """
    if is_request_open(contents, answer):
        assert answer is not None
        return choose_requested(contents, answer, now_s=now_s)
    if contents.damaged:
        first = contents.damaged[0]
        raise _unreadable(contents, first.name, f"cannot be read: {first.problem}", now_s)
    if contents.head is not None:
        if contents.head not in contents.known:
            problem = f"is not in {contents.uri}, and HEAD names it as the last checkpoint"
            raise _unreadable(contents, manifest_name(contents.head), problem, now_s)
        if later := later_commit_after(contents.known[contents.head], contents.manifests, contents.retired):
            problem = f"names {contents.head}, but {later} proves a later commit: HEAD is an older copy"
            raise _unreadable(contents, HEAD, problem, now_s, NoFallbackError)
        return contents.known[contents.head]
    leftovers = _left_over(contents)
    if not contents.manifests:
        if leftovers:
            problem = f"is not in {contents.uri}, but {leftovers} of checkpoints are"
            raise _unreadable(contents, "manifest-*.json", problem, now_s)
        return None
    only, *others = contents.manifests.values()
    if not others and only.parent is None and not _retired_names(contents):
        return only  # its master ended between the first commit and HEAD
    beside = f", and {leftovers}" if leftovers else ""
    problem = f"is not in {contents.uri}, but {len(contents.manifests)} manifests are{beside}: the last one is unknown"
    raise _unreadable(contents, HEAD, problem, now_s)


def choose_requested(contents: FolderContents, answer: RequestedStart, *, now_s: float) -> Manifest | None:
    """The manifest that was requested; None: the job starts from zero.  Raises UnreadableCheckpointError."""
    return None if answer.manifest is None else _named(contents, answer.manifest, now_s)


def later_commit_after(
    named: Manifest, manifests: Mapping[ManifestId, Manifest], retired: Mapping[ManifestId, Manifest]
) -> str:
    """The file that proves that a checkpoint was committed after the one that HEAD names; empty: there is none.

    A manifest is retired only once HEAD names a newer one, and it names as parent what was committed before it.  One
    newer manifest whose parent is the one that HEAD names proves nothing: its master may have ended before the
    commit.
    """
    if named.id not in manifests and named.id in retired:
        return retired_name(named.id)
    known = {**retired, **manifests}
    newer = (one for one in known.values() if write_order(one) > write_order(named) and _may_follow(one, named, known))
    proofs = (one for one in newer if one.id not in manifests or not _may_be_uncommitted(one, named, known))
    found = min(proofs, key=write_order, default=None)
    return "" if found is None else (manifest_name if found.id in manifests else retired_name)(found.id)


def _may_be_uncommitted(one: Manifest, named: Manifest, known: Mapping[ManifestId, Manifest]) -> bool:
    """True if its master may have ended before the commit, or saw that the folder belongs to another job.

    The latter is the first of its history: it resumed from a checkpoint before the one that HEAD names by then.
    """
    if one.parent in (named.id, None):
        return True
    before = known.get(one.parent)
    return (
        before is not None
        and one.history != named.history == before.history
        and write_order(before) < write_order(named)
    )


def _may_follow(one: Manifest, named: Manifest, known: Mapping[ManifestId, Manifest]) -> bool:
    """False: it is another job's, which resumed from another checkpoint in the same folder.

    Where the chain of another history is broken off, a manifest older than the named one was not committed after it.
    """
    if one.history == named.history:
        return True
    passed, parent = {one.id}, one.parent
    while parent is not None and parent in known and parent not in passed:
        passed.add(parent)
        parent = known[parent].parent
    return named.id in passed or (parent is not None and one.created_at_s > named.created_at_s)


def is_request_open(contents: FolderContents, answer: RequestedStart | None) -> bool:
    """True if the request still has to be followed: nothing was committed since it was.

    A manifest of its history shows a commit.  So does every change of a folder in which it was followed to the end,
    readable or not; data files alone do not, since a master that ends before its first commit leaves them.
    """
    if answer is None or any(one.history == answer.history for one in contents.known.values()):
        return False
    return not contents.is_request_done or _is_as_set_aside(contents, answer)


def _is_as_set_aside(contents: FolderContents, answer: RequestedStart) -> bool:
    kept = set() if answer.manifest is None else {answer.manifest}
    is_changed = contents.damaged or contents.damaged_retired or contents.retired
    return not is_changed and contents.head == answer.manifest and set(contents.manifests) == kept


def _named(contents: FolderContents, wanted: ManifestId, now_s: float) -> Manifest:
    found = contents.known.get(wanted)
    if found is None:
        problem = f"was requested and cannot be read in {contents.uri}"
        raise _unreadable(contents, f"manifest {wanted}", problem, now_s, NoFallbackError)
    return found


def _unreadable(
    contents: FolderContents,
    name: str,
    problem: str,
    now_s: float,
    kind: type[UnreadableCheckpointError] = UnreadableCheckpointError,
) -> UnreadableCheckpointError:
    newest = sorted(contents.known.values(), key=write_order, reverse=True)
    readable = "; ".join(describe_manifest(one, now_s=now_s) for one in newest[:_SHOWN])
    beside = f"Readable: {readable}." if readable else "No manifest can be read."
    others = [damage.name for damage in contents.damaged if damage.name != name]
    more = f" Also unreadable: {', '.join(others[:_SHOWN])}." if others else ""
    ways = (
        f"--from {newest[0].id if newest else 'MANIFEST'} or --start-fresh for `edl run`, "
        "EDL_CHECKPOINT_START=MANIFEST or =fresh for a script that runs alone, spec.checkpoint.start on Kubernetes"
    )
    return kind(
        name,
        f"{problem}. Nothing was started, changed or deleted. {beside}{more} Restore the folder {contents.uri} "
        f"(`edl data verify {contents.uri}` reads every byte), or choose a start: {ways}",
    )


def describe_manifest(manifest: Manifest, *, now_s: float) -> str:
    """A checkpoint in one phrase, for people."""
    total = manifest.dataset.size * manifest.dataset.epochs
    age_s = max(0, int(now_s - manifest.created_at_s))
    old = f"{age_s} s" if age_s < 120 else f"{age_s // 60} min" if age_s < 7200 else f"{age_s // 3600} h"
    return f"{manifest.id} (step {manifest.step:,}, {len(manifest.data):,} of {total:,} samples, {old} old)"


def _left_over(contents: FolderContents) -> str:
    """The other files of checkpoints, for people; empty: there are none."""
    found = (("data file", contents.data_files), ("retired manifest", _retired_names(contents)))
    return " and ".join(_counted(kind, names) for kind, names in found if names)


def _retired_names(contents: FolderContents) -> tuple[str, ...]:
    return (*map(retired_name, contents.retired), *(damage.name for damage in contents.damaged_retired))


def _counted(kind: str, names: Iterable[str]) -> str:
    names = tuple(names)
    return f"{len(names)} {kind}{'' if len(names) == 1 else 's'} ({names[0]}{', ...' if len(names) > 1 else ''})"


# ---- its files ------------------------------------------------------------------------------------------------------


def check_files_are_there(
    storage: Storage, manifest: Manifest, contents: FolderContents, *, is_answer: bool, now_s: float
) -> None:
    """Check that each data file has at least its recorded length; servers compare digests when they load it.

    A complete job loads no model, so its digests are compared here: otherwise it would be reported complete with a
    model that cannot be read.  Raises UnreadableCheckpointError, naming the file; NoFallbackError where the checkpoint
    was requested.
    """
    for file in manifest.files:
        try:
            if manifest.is_complete:
                check_file(storage, file)
            elif file.size_bytes:
                storage.read(file.name, offset=file.size_bytes - 1, length_bytes=1)
        except (StorageMissingError, StorageAlteredError) as error:
            problem = f"of checkpoint {manifest.id} cannot be read: {error.problem}"
            kind = NoFallbackError if is_answer else UnreadableCheckpointError
            raise _unreadable(contents, file.name, problem, now_s, kind) from error


def find_start(storage: Storage, answer: RequestedStart | None, *, now_s: float) -> Manifest | None:
    """Manifest from which a job without a store resumes; None: it starts from zero.  Nothing is changed.

    Raises UnreadableCheckpointError as `choose_start` and `check_files_are_there`, StorageError for an unusable
    folder.
    """
    contents = read_contents(storage, answer)
    chosen = choose_start(contents, answer, now_s=now_s)
    if chosen is not None:
        check_files_are_there(storage, chosen, contents, is_answer=is_request_open(contents, answer), now_s=now_s)
    return chosen
