"""What a job goes on from is what its folder says; a folder that cannot be read is never an empty one (M11)."""

from dataclasses import replace

import pytest

from master.api.checkpoints.audit import audit_storage, try_head_hint, write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.folder_contents import RequestedStart, set_aside
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.resume import find_start, parse_requested_start
from master.api.checkpoints.verification import verify_folder
from master.api.errors import ManifestError, StorageError, UnreadableCheckpointError
from master.api.identities import HistoryId, Lineage, ManifestId
from master.durable.checkpoint_folder import CheckpointFolder
from master.job.domain.durable_records import RefoundingRecord
from tests.unit.master.api.checkpoints.test_manifest_codec import FILE, MANIFEST

NOW_S = MANIFEST.created_at_s + 7200
NEW = HistoryId("new")


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "checkpoints")


def written(storage, name, **changes):
    done = storage.write_file(f"cut-1-7-{name}-0-a.edl", [name.encode() * 100])
    file = replace(FILE, name=f"cut-1-7-{name}-0-a.edl", size_bytes=done.size_bytes, digest=done.digest)
    manifest = replace(MANIFEST, id=ManifestId(name), files=(file,), **changes)
    write_manifest(storage, manifest)
    return manifest


@pytest.fixture
def chain(storage):
    """Two checkpoints; HEAD names the second one."""
    first = written(storage, "1", step=1)
    second = written(storage, "2", step=2, parent=first.id)
    write_head_hint(storage, second.id)
    return first, second


def start(storage, answer=None):
    return find_start(storage, answer, now_s=NOW_S)


def followed(storage, answer):
    """As a term does that may act: what the answer says, and what that has left to stand."""
    folder = CheckpointFolder(storage)
    begun = folder.begin(answer)
    if begun.request is not None:
        base = begun.head and begun.head.id
        folder.set_aside(RefoundingRecord(base=base, history=answer.history, above=begun.above), lambda: True)
    return begun


def names(storage):
    return storage.list(), storage.list("cut-")


def refused(storage, *told, answer=None):
    """It begins nothing, changes nothing, and says all of that."""
    before = names(storage)
    with pytest.raises(UnreadableCheckpointError) as caught:
        start(storage, answer)
    with pytest.raises(UnreadableCheckpointError):
        CheckpointFolder(storage).begin(answer)
    for text in told:
        assert text in str(caught.value)
    assert names(storage) == before


def test_an_empty_folder_is_a_new_job(storage):
    """No folder, or one with nothing of a checkpoint in it."""
    assert start(storage) is None
    storage.write_file("notes.txt", [b"mine"])
    assert start(storage) is None


def test_a_whole_folder_goes_on_from_what_head_names(storage, chain):
    """Also when a newer manifest stands beside it: nobody was told that it is committed."""
    assert start(storage) == chain[1]
    written(storage, "3", step=3, parent=chain[1].id)
    assert start(storage) == chain[1]


@pytest.mark.parametrize("content", [b"", b"2", b"2\n\n", b"\x002\n", b"../2\n", b"2\n1\n", b"\xff\n"])
def test_a_head_that_is_no_line_with_an_id_is_refused(storage, chain, content):
    """Cut short, doubled or altered: the name of the file, and what can be read."""
    storage.write_file("HEAD", [content])
    refused(storage, "HEAD: cannot be read", "--from 2", "--start-fresh", "1 (step 1,", " 2 h old")


def test_a_head_that_names_what_is_not_there_is_refused(storage, chain):
    """The manifest was deleted: the one before it is not taken without a word."""
    storage.delete("manifest-2.json")
    refused(storage, "manifest-2.json: is not in", "HEAD names it", "--from 1")


@pytest.mark.parametrize("which", ["1", "2"])
def test_any_manifest_that_cannot_be_read_is_refused(storage, chain, which):
    """The newest one or an older one: what it named is not known any more."""
    storage.write_file(f"manifest-{which}.json", [storage.read(f"manifest-{which}.json")[:-40]])
    refused(storage, f"manifest-{which}.json: cannot be read: is not JSON", "Nothing was started, changed or deleted")


def test_a_folder_without_head_is_a_guess_and_refused(storage, chain):
    """Which of two manifests was last?  With one that has no parent there is nothing to guess."""
    storage.delete("HEAD")
    refused(storage, "HEAD: is not in", "2 manifests are")
    storage.delete("manifest-2.json")
    storage.delete("cut-1-7-2-0-a.edl")
    assert start(storage) == chain[0]


def test_data_files_without_a_manifest_are_refused(storage):
    """Somebody's checkpoints were there."""
    storage.write_file("cut-1-7-1-0-a.edl", [b"x"])
    refused(storage, "manifest-*.json: is not in", "1 data file (cut-1-7-1-0-a.edl)", "No manifest can be read")


@pytest.mark.parametrize("harm", ["delete", "cut"])
def test_a_data_file_that_is_missing_or_short_is_refused(storage, chain, harm):
    """Told before anything starts, with the checkpoint that is there beside it."""
    name = chain[1].files[0].name
    if harm == "delete":
        storage.delete(name)
    else:
        storage.write_file(name, [storage.read(name)[:-1]])
    refused(storage, f"{name}: of checkpoint 2 cannot be read", "1 (step 1,")


def test_a_file_that_cannot_be_opened_is_no_answer_either(storage, chain, tmp_path):
    """No permission, an error of the disk: neither damaged nor absent, and told as it is."""
    (tmp_path / "checkpoints" / "HEAD").unlink()
    (tmp_path / "checkpoints" / "HEAD").mkdir()
    with pytest.raises(StorageError, match=r"HEAD: .*Is a directory"):
        start(storage)


def test_anew_sets_everything_aside_and_deletes_nothing(storage, chain):
    """What was there is a checkpoint folder of its own; the answer counts until something is committed."""
    storage.write_file("manifest-2.json", [b"{"])
    fresh = RequestedStart(manifest=None, history=NEW)
    assert followed(storage, fresh).head is None
    assert storage.list() == ()
    aside = LocalStorage(storage._folder / "aside" / "new")
    assert len(aside.list()) == 5
    assert start(aside, RequestedStart(manifest=ManifestId("1"), history=NEW)) == chain[0]
    begun = written(storage, "9", step=1, history=NEW, lineage=Lineage(3))
    write_head_hint(storage, begun.id)
    again = followed(storage, fresh)
    assert (again.head, again.request) == (begun, None)


ANSWERS = pytest.mark.parametrize("chosen", [None, ManifestId("1")], ids=["fresh", "from"])


def committed_after(storage, answer, *steps):
    """The answer was followed, and checkpoints of what began then were committed.  All that stands there afterwards."""
    head = followed(storage, answer).head
    for step in steps:
        manifest = written(
            storage, f"n{step}", step=step, parent=head and head.id, history=answer.history, lineage=Lineage(3)
        )
        write_head_hint(storage, manifest.id)
        head = manifest
    return names(storage)


@ANSWERS
@pytest.mark.parametrize("harm", ["damaged HEAD", "no HEAD", "damaged manifest", "no manifest"])
@pytest.mark.parametrize("steps", [(2, 3, 4), (2,)], ids=["many", "one"])
def test_an_answer_that_was_followed_hides_no_later_damage(storage, chain, chosen, harm, steps):
    """What began with it is the job's own work: it is refused as any other, and nothing of it moves (M11)."""
    answer = RequestedStart(manifest=chosen, history=NEW)
    committed_after(storage, answer, *steps)
    newest = f"manifest-n{steps[-1]}.json"
    match harm:
        case "damaged HEAD":
            storage.write_file("HEAD", [b"n"])
        case "no HEAD" if chosen is None and steps == (2,):
            storage.delete("HEAD")
            assert start(storage, answer).id == "n2", "the only one, without a parent: nothing is guessed"
            return
        case "no HEAD":
            storage.delete("HEAD")
        case "damaged manifest":
            storage.write_file(newest, [b"{"])
        case _:
            storage.delete(newest)
    old_head = storage.read("aside/new/HEAD")
    refused(storage, "Nothing was started, changed or deleted", answer=answer)
    assert storage.read("aside/new/HEAD") == old_head


@ANSWERS
def test_an_answer_is_followed_until_something_is_committed(storage, chain, chosen):
    """A master that died before its first commit leaves data files: the next one begins as the answer says, again."""
    answer = RequestedStart(manifest=chosen, history=NEW)
    before = committed_after(storage, answer)
    storage.write_file("cut-3-1-1-0-a.edl", [b"x"])
    found = followed(storage, answer)
    assert (found.head and found.head.id, found.request) == (chosen, answer)
    assert names(storage) == before
    assert storage.read("aside/new/HEAD") == b"2\n"


@ANSWERS
def test_setting_aside_that_was_broken_off_is_finished(storage, chain, chosen, monkeypatch):
    """What is left of the old checkpoints is no damage: nothing was committed since."""
    answer = RequestedStart(manifest=chosen, history=NEW)
    storage.write_file("manifest-2.json", [b"{"])
    moved, move = [], LocalStorage.move

    def break_off(self, name, to):
        if len(moved) == 1:
            raise StorageError(name, "the master was killed")
        moved.append(name)
        move(self, name, to)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "move", break_off)
        with pytest.raises(StorageError):
            followed(storage, answer)
    assert followed(storage, answer).request == answer
    assert not storage.list("manifest-2")
    assert storage.read("aside/new/HEAD") == b"2\n"


@ANSWERS
def test_a_head_that_was_set_aside_is_never_replaced(storage, chain, chosen):
    """Whatever stands under `aside/` is somebody's only copy."""
    storage.write_file("aside/new/HEAD", [b"older\n"])
    keep = chain[0] if chosen else None
    set_aside(storage, keep, NEW, above=Lineage(1), check=lambda: None)
    assert storage.read("aside/new/HEAD") == b"older\n"
    assert storage.read("aside/new/HEAD-2") == b"2\n"


def test_a_retired_manifest_alone_is_a_checkpoint_folder(storage, chain):
    """HEAD, the newest manifest and all data files are gone: somebody's checkpoints were there."""
    CheckpointFolder(storage).retain(frozenset({chain[1].id}))
    for name in storage.list():
        if name != "retired-1.json":
            storage.delete(name)
    refused(storage, "manifest-*.json: is not in", "1 retired manifest (retired-1.json)", "--from 1")
    storage.write_file("retired-1.json", [b"{"])
    refused(storage, "manifest-*.json: is not in", "1 retired manifest (retired-1.json)")


def test_copies_of_a_group_are_data_files_of_a_folder(storage, chain):
    """Alone they are somebody's checkpoints; a start from another checkpoint sets them aside with the rest."""
    storage.write_file("replica-1-2-3-a-1.npz", [b"x"])
    set_aside(storage, chain[0], NEW, above=Lineage(1), check=lambda: None)
    assert storage.list("replica-") == ()
    assert storage.exists("aside/new/replica-1-2-3-a-1.npz")
    storage.write_file("replica-1-2-3-a-1.npz", [b"x"])
    for name in ("HEAD", "manifest-1.json"):
        storage.delete(name)
    refused(storage, "manifest-*.json: is not in", "2 data files (cut-1-7-1-0-a.edl, ...)")


def test_a_first_manifest_with_retired_ones_beside_it_is_a_guess(storage, chain):
    """A newer one has replaced those, and it is gone with HEAD."""
    CheckpointFolder(storage).retain(frozenset({chain[1].id}))
    written(storage, "0", step=0)
    for name in ("HEAD", "manifest-2.json"):
        storage.delete(name)
    refused(storage, "HEAD: is not in")


def test_from_a_manifest_keeps_it_and_sets_the_rest_aside(storage, chain):
    """HEAD names it from then on, so that who starts without the answer goes on from it too."""
    storage.write_file("manifest-2.json", [b"{"])
    found = followed(storage, RequestedStart(manifest=ManifestId("1"), history=NEW))
    assert found.head == chain[0]
    assert set(storage.list()) == {"HEAD", "manifest-1.json", chain[0].files[0].name}
    assert start(storage) == chain[0]
    set_aside(storage, chain[0], NEW, above=Lineage(1), check=lambda: None)
    assert storage.read("aside/new/HEAD") == b"2\n"


def test_from_what_cannot_be_read_is_refused(storage, chain):
    """A name with a typing error begins nothing."""
    refused(storage, "manifest 7: was requested", answer=RequestedStart(manifest=ManifestId("7"), history=NEW))


def test_a_retired_manifest_can_be_gone_on_from(storage, chain):
    """The checkpoint before head is kept for that."""
    CheckpointFolder(storage).retain(frozenset({chain[1].id}))
    assert "retired-1.json" in storage.list()
    storage.delete("manifest-2.json")
    refused(storage, "--from 1")
    assert followed(storage, RequestedStart(manifest=ManifestId("1"), history=NEW)).head == chain[0]
    assert start(storage) == chain[0]


def test_lineages_go_on_above_all_that_stands_there(storage, chain):
    """By name, readable or not: what another history left is never mistaken for this one's."""
    storage.write_file("cut-12-1-1-0-a.edl", [b"x"])
    assert CheckpointFolder(storage).begin(None).above == 12


@pytest.mark.parametrize("text", ["../x", "a b", ".hidden", "x\n"])
def test_an_answer_that_makes_no_file_name_is_refused(text):
    """It comes from a command line or a variable."""
    with pytest.raises(ManifestError):
        parse_requested_start(text, NEW)


@pytest.mark.parametrize("proof", ["retired", "chain"])
def test_a_head_that_is_an_older_copy_is_refused(storage, proof):
    """A rename that the disk lost, a file from a backup: it went back to the older checkpoint without a word."""
    chain = [written(storage, "1", step=1)]
    for step in (2, 3):
        chain.append(written(storage, str(step), step=step, parent=chain[-1].id))
    if proof == "retired":
        storage.move("manifest-1.json", "retired-1.json")
        storage.delete("manifest-3.json")
    write_head_hint(storage, chain[0].id)
    shown = "retired-1.json" if proof == "retired" else "manifest-3.json"
    refused(storage, f"HEAD: names 1, but {shown} proves a later commit", "--from ")
    assert any(shown in problem for problem in verify_folder(storage).problems)
    if proof == "retired":  # a copy that brought the manifest back as well
        shown = "retired-2.json"
        write_manifest(storage, chain[0])
        storage.move("manifest-2.json", shown)
    assert any(shown in problem for problem in audit_storage(storage).problems)


def test_a_store_that_is_older_than_its_folder_is_refused(storage, chain):
    """An etcd brought back from a snapshot: what was committed since would be trained again without a word."""
    folder = CheckpointFolder(storage)
    with pytest.raises(UnreadableCheckpointError, match="HEAD: names 2, which was committed after 1"):
        folder.read_committed(chain[0].id)
    assert folder.read_committed(chain[1].id) == chain[1]
    write_head_hint(storage, chain[0].id)
    assert folder.read_committed(chain[1].id) == chain[1], "a master was killed before it wrote HEAD"
    storage.write_file("HEAD", [b"?"])
    assert folder.read_committed(chain[1].id) == chain[1]


def test_head_is_not_taken_from_another_job(storage, chain):
    """Its own first commit follows another history's; what that one commits later is nobody else's to replace."""
    folder = CheckpointFolder(storage)
    mine = written(storage, "m", step=3, parent=chain[1].id, history=NEW, lineage=Lineage(2))
    theirs = written(storage, "t", step=4, parent=chain[1].id)
    write_head_hint(storage, theirs.id)
    with pytest.raises(StorageError, match="HEAD: names t of another job's history"):
        folder.write_head(mine.id)
    assert try_head_hint(storage) == theirs.id
    write_head_hint(storage, chain[1].id)
    folder.write_head(mine.id)
    assert try_head_hint(storage) == mine.id


def test_a_master_that_stood_still_does_not_take_head_back(storage, chain):
    """It was stopped between its commit and HEAD; the one that followed has noted a newer one."""
    CheckpointFolder(storage).write_head(chain[0].id)
    assert try_head_hint(storage) == chain[1].id


def test_a_second_jobs_manifest_makes_no_older_copy_of_head(storage):
    """It went on from the first checkpoint into another history, and left; the first job begins all the same."""
    chain = [written(storage, "1", step=1)]
    written(storage, "other", step=2, parent=chain[0].id, history=NEW, lineage=Lineage(2))
    for step in (2, 3):
        chain.append(written(storage, str(step), step=step, parent=chain[-1].id))
        write_head_hint(storage, chain[-1].id)
        assert start(storage) == chain[-1]
    storage.delete("manifest-1.json")
    assert start(storage) == chain[-1], "where the other one went on from only its time tells"


def test_what_began_before_head_was_committed_did_not_follow_it(storage):
    """A second job began from the checkpoint before head, and wrote its first one only after head was committed."""
    before = written(storage, "8", step=8, parent=ManifestId("gone"))
    storage.move("manifest-8.json", "retired-8.json")
    head = written(storage, "9", step=9, parent=before.id)
    late = {"history": NEW, "lineage": Lineage(2), "created_at_s": head.created_at_s + 5}
    written(storage, "other", step=10, parent=before.id, **late)
    write_head_hint(storage, head.id)
    assert start(storage) == head


def test_what_another_history_went_on_to_from_head_proves_that_head_is_an_older_copy(storage):
    """The job's own history, after an answer: HEAD was brought back from before it (M11)."""
    chain = [written(storage, "1", step=1)]
    for step in (2, 3):
        own = {"history": NEW, "lineage": Lineage(2)}
        chain.append(written(storage, str(step), step=step, parent=chain[-1].id, **own))
    write_head_hint(storage, "1")
    refused(storage, "HEAD: names 1, but manifest-3.json proves")
    storage.delete("manifest-2.json")
    assert start(storage) == chain[0], "nothing says that it followed"
    write_manifest(storage, replace(chain[2], created_at_s=chain[0].created_at_s + 1))
    refused(storage, "HEAD: names 1, but manifest-3.json proves")


def test_what_is_written_after_an_answer_was_followed_is_never_set_aside(storage, chain):
    """A term that is over ends its move late: another master has followed the answer, and has committed since."""
    answer = RequestedStart(manifest=chain[0].id, history=NEW)
    late = CheckpointFolder(storage).begin(answer)
    followed(storage, answer)
    storage.write_file("cut-2-8-1-0-a.edl", [b"x"])
    storage.write_file("manifest-000002-0000000008-000001-a.json", [b"{}"])
    write_head_hint(storage, ManifestId("000002-0000000008-000001-a"))
    before = names(storage)
    record = RefoundingRecord(base=chain[0].id, history=NEW, above=late.above)
    CheckpointFolder(storage).set_aside(record, lambda: True)
    assert names(storage) == before
    assert try_head_hint(storage) == "000002-0000000008-000001-a"


def test_a_term_that_may_not_act_any_more_moves_nothing(storage, chain):
    """Whoever leads then does it."""
    before = names(storage)
    record = RefoundingRecord(base=chain[0].id, history=NEW, above=Lineage(1))
    with pytest.raises(StorageError, match="this term may be over"):
        CheckpointFolder(storage).set_aside(record, lambda: False)
    assert names(storage) == before
