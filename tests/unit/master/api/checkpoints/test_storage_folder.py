"""A checkpoint file stands complete under its name, or not at all."""

import errno
import os
import re
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from master.api.checkpoints.checkpoint_files import check_written, file_digest, read_manifest, write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.remote_storage import RemoteStorage
from master.api.checkpoints.storage import open_storage
from master.api.errors import (
    StorageAlteredError,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StorageReadOnlyError,
)
from tests.unit.master.api.checkpoints.test_manifest_codec import FILE, MANIFEST


@pytest.fixture(params=["path", "file", "memory"])
def storage(request, tmp_path):
    uri = {"path": str(tmp_path / "ck"), "file": f"file://{tmp_path}/ck", "memory": f"memory://{uuid.uuid4().hex}/ck"}
    return open_storage(uri[request.param])


def test_what_is_written_is_read(storage):
    """Chunks of any buffer kind become one file; its size and digest are answered."""
    written = storage.write_file("a/b.edl", [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    assert written.size_bytes == 9
    assert storage.read("a/b.edl") == b"abcdefghi"
    assert storage.read("a/b.edl", offset=3, length_bytes=3) == b"def"
    assert written.digest == file_digest(storage, "a/b.edl", size_bytes=9)


def test_a_file_is_replaced_whole_or_not_at_all(storage):
    """A writer that dies in the middle leaves the older file (rule 21)."""

    def dies():
        yield b"half"
        raise RuntimeError("power cut")

    storage.write_file("f", [b"old"])
    with pytest.raises(RuntimeError, match="power cut"):
        storage.write_file("f", dies())
    assert storage.read("f") == b"old"
    assert storage.list() == ("f",)
    storage.write_file("f", [b"new"])
    assert storage.read("f") == b"new"


def test_leftovers_of_dead_writers_are_discarded(storage):
    """Only temporary files, and only those that nobody has written to for a while."""
    lasting = []

    def alive():
        yield b"half"
        storage.discard_leftovers(older_than_s=60.0)
        lasting.append(storage.write_file("other", [b"."]))
        yield b"whole"

    storage.write_file("f", alive())
    assert (storage.read("f"), len(lasting)) == (b"halfwhole", 1)
    leave_a_temporary_file(storage)
    storage.discard_leftovers(older_than_s=60.0)
    assert temporary_files(storage)
    storage.discard_leftovers(older_than_s=-1.0)
    assert not temporary_files(storage)
    assert storage.list() == ("f", "other")


def test_listing_names_files_of_the_folder_only(storage):
    """An absent folder is an empty one; files of subfolders are not listed."""
    assert storage.list() == ()
    for name in ("m-2", "m-1", "x", "sub/m-3"):
        storage.write_file(name, [b"."])
    assert storage.list("m-") == ("m-1", "m-2")
    assert storage.exists("sub/m-3")
    storage.delete("m-1")
    storage.delete("m-1")
    assert not storage.exists("m-1")


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    """Who gives a model file, or whose folder was replaced by one, reads its name, not a prefix of ours."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(StorageError, match=f"{re.escape(str(file))}: is no folder"):
        open_storage(str(file)).list("manifest-")
    for act in (lambda storage: storage.write_file("f", [b"."]), lambda storage: storage.read("f")):
        with pytest.raises(StorageError, match=f"f: {re.escape(str(file))} is no folder"):
            act(open_storage(str(file)))


def test_absent_and_short_files_are_told_apart(storage):
    """Missing and altered lead to different advice."""
    storage.write_file("f", [b"abc"])
    with pytest.raises(StorageMissingError, match="g: is not in"):
        storage.read("g")
    with pytest.raises(StorageAlteredError, match="f: ends 2 bytes too early"):
        storage.read("f", offset=1, length_bytes=4)


def test_what_a_member_wrote_is_looked_for_and_not_read(storage):
    """A server's mount may be another folder than the master's: the file is not there, or is another one (M11)."""
    written = storage.write_file("f", [b"abc"])
    file = replace(FILE, name="f", size_bytes=written.size_bytes, digest=written.digest)
    assert storage.size_bytes("f") == 3
    check_written(storage, file)
    with pytest.raises(StorageMissingError, match=r"g: is not in .* must see the same checkpoint\.uri"):
        check_written(storage, replace(file, name="g"))
    with pytest.raises(StorageAlteredError, match=r"f: has 3 bytes in .* and not the 4 that were written"):
        check_written(storage, replace(file, size_bytes=4))


def test_a_manifest_is_written_and_read(storage):
    """The manifest's own door."""
    write_manifest(storage, MANIFEST)
    assert read_manifest(storage, MANIFEST.id) == MANIFEST


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "", ".part-x"])
def test_names_that_leave_the_folder_are_refused(storage, name):
    """A file record from elsewhere cannot make the master read another folder."""
    with pytest.raises(StorageError, match="is not a relative name"):
        storage.read(name)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFullError),
        (errno.EDQUOT, StorageFullError),
        (errno.EROFS, StorageReadOnlyError),
        (errno.EACCES, StorageReadOnlyError),
        (errno.EIO, StorageError),
    ],
)
def test_errors_of_the_disk_have_names(tmp_path, number, kind):
    """What the writer meets becomes the error that says what to do; nothing is left behind."""

    def fails():
        yield b"x"
        raise OSError(number, "as the disk says")

    with pytest.raises(kind) as caught:
        LocalStorage(tmp_path).write_file("f", fails())
    assert type(caught.value) is kind
    assert list(tmp_path.iterdir()) == []


class Unreachable(MemoryFileSystem):
    """A driver that raises what its HTTP client raises."""

    cachable = False

    def fail(self, *_, **__):
        raise RuntimeError("503 from the object store")

    _open = cat_file = ls = rm_file = fail


def test_whatever_a_driver_raises_is_an_error_of_storage():
    """A commit that waits for the folder hears of it, and is tried again; no other name would be caught."""
    storage = RemoteStorage("memory://bucket", Unreachable(), "/bucket")
    for act in (
        lambda: storage.write_file("f", [b"."]),
        lambda: storage.read("f"),
        storage.list,
        lambda: storage.delete("f"),
    ):
        with pytest.raises(StorageError, match="RuntimeError: 503"):
            act()


def test_a_file_size_limit_is_a_full_folder(tmp_path):
    """A real limit of the kernel, in a process of its own."""
    script = (
        "import resource, sys; from master.api.checkpoints.storage import LocalStorage; from pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from master.api.errors import StorageFullError\n"
        "try: LocalStorage(Path(sys.argv[1])).write_file('f', [bytes(100_000)])\n"
        "except StorageFullError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "no space left" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["gopher://x/y", "file://elsewhere/x"])
def test_an_unusable_uri_is_refused_at_once(uri):
    """Before anything is trained, not at the first checkpoint."""
    with pytest.raises(StorageError):
        open_storage(uri)


def test_plain_paths_need_no_fsspec(tmp_path):
    """The base install carries grpcio, protobuf and NumPy only."""
    script = (
        "import sys; sys.modules['fsspec'] = None; import master.api.wire.message_codec, master.api.checkpoints.audit\n"
        "import master.api.checkpoints.storage as s\n"
        "s.open_storage(sys.argv[1]).write_file('f', [b'x']); s.open_storage('file://' + sys.argv[1]).read('f')\n"
        "try: s.open_storage('s3://bucket/x')\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "needs a package that is not installed" in done.stdout


def test_the_kind_of_storage_follows_the_uri(tmp_path):
    """Plain paths never go through fsspec."""
    assert isinstance(open_storage(str(tmp_path)), LocalStorage)
    assert isinstance(open_storage("memory://x"), RemoteStorage)


def leave_a_temporary_file(storage):
    """As a SIGKILL in the middle of a write does."""
    if isinstance(storage, RemoteStorage):
        storage._filesystem.pipe_file(f"{storage._root}/.part-dead", b"half")
    else:
        (storage._folder / ".part-dead").write_bytes(b"half")


def temporary_files(storage):
    if isinstance(storage, RemoteStorage):
        return [path for path in storage._filesystem.find(storage._root) if ".part-" in path]
    return list(storage._folder.glob(".part-*"))


def names_in(folder):
    return {path.name for path in folder.iterdir()}


class PowerCut:
    """Which names a power cut leaves: those that stood in a folder when it was last synced."""

    def __init__(self, monkeypatch, root):
        self.root, self.durable, fsync = root, {root: names_in(root)}, os.fsync

        def record(descriptor):
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_dir():
                self.durable[path] = names_in(path)

        monkeypatch.setattr(os, "fsync", record)

    def left(self, folder=None):
        """All files that are still found from the root."""
        folder = folder or self.root
        paths = [folder / name for name in self.durable.get(folder, ())]
        return {p for p in paths if not p.is_dir()}.union(*(self.left(p) for p in paths if p.is_dir()))


def test_a_written_file_is_found_after_a_power_cut_in_a_new_folder_too(tmp_path, monkeypatch):
    """The folders above it were not synced: a first checkpoint was gone as a whole, and the job began anew."""
    cut, folder = PowerCut(monkeypatch, tmp_path), tmp_path / "of" / "jobs" / "digits"
    LocalStorage(folder).write_file("HEAD", [b"1"])
    assert cut.left() == {folder / "HEAD"}


def test_a_moved_file_is_found_under_one_name_after_a_power_cut(tmp_path, monkeypatch):
    """What is set aside came back beside what began anew."""
    cut, storage = PowerCut(monkeypatch, tmp_path), LocalStorage(tmp_path)
    storage.write_file("HEAD", [b"1"])
    storage.move("HEAD", "aside/new/HEAD")
    assert cut.left() == {tmp_path / "aside" / "new" / "HEAD"}
