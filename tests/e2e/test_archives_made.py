"""The same content gives the same bytes, and the bytes are what the image format asks for.  Needs no root."""

import hashlib
import json
import tarfile

import pytest

from tests.e2e.oci import Image, Layer, write_archive
from tests.e2e.trees import file, folder, link, read_folder, read_tar, write_tar


@pytest.fixture
def layer(tmp_path):
    """`layer("name", tree)`"""

    def make(name, tree):
        path = tmp_path / name
        return Layer(path=path, sha256=write_tar(tree, path))

    return make


def test_a_layer_is_what_it_holds_and_nothing_else(layer):
    """Neither the order nor the time of making shows."""
    one = layer("one", {"b": file("2"), "a/x": file("1", mode=0o755)})
    other = layer("other", {"a/x": file("1", mode=0o755), "b": file("2")})
    assert one.sha256 == other.sha256 == hashlib.sha256(one.path.read_bytes()).hexdigest()


def test_a_layer_is_read_as_it_was_written(layer):
    tree = {
        "etc": folder(),
        "etc/x": file("1", mode=0o600, owner=33),
        "etc/y": link("x"),
        "tmp": folder(mode=0o1777),
    }
    with layer("one", tree).path.open("rb") as source:
        assert read_tar(source) == tree


def test_packages_that_still_use_old_folders_land_in_usr(tmp_path):
    """As on an installed Debian, where /lib is a link to /usr/lib."""
    with tarfile.open(tmp_path / "old", "w") as archive:
        member = tarfile.TarInfo("./lib/x.so")
        archive.addfile(member)
    with (tmp_path / "old").open("rb") as source:
        assert set(read_tar(source)) == {"usr/lib/x.so"}


def test_a_folder_becomes_roots_own(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/run").write_text("1")
    (tmp_path / "bin/run").chmod(0o700)
    (tmp_path / "bin/again").symlink_to("run")
    tree = read_folder(tmp_path, at="opt")
    assert tree == {"opt/bin": folder(), "opt/bin/run": file("1", mode=0o755), "opt/bin/again": link("run")}


def test_images_share_their_layers_in_one_archive(layer, tmp_path):
    """Each blob is there once, under the name of its content, and every reference leads to one."""
    base, top = layer("base", {"a": file("1")}), layer("top", {"b": file("2")})
    images = [
        Image(name="docker.io/edl/one:1", layers=(base,), command=("one",), user="65532"),
        Image(name="docker.io/edl/two:1", layers=(base, top), environ={"QUIET": "1"}),
    ]
    write_archive(images, tmp_path / "archive", machine="x86_64")
    with tarfile.open(tmp_path / "archive") as archive:
        names = archive.getnames()
        blobs = {name: archive.extractfile(name).read() for name in names}
    assert len(names) == len(set(names))
    for name, data in blobs.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    for entry, image in zip(json.loads(blobs["index.json"])["manifests"], images, strict=True):
        assert entry["annotations"]["io.containerd.image.name"] == image.name
        manifest = json.loads(blobs[_path(entry)])
        config = json.loads(blobs[_path(manifest["config"])])
        assert [blobs[_path(part)] for part in manifest["layers"]] == [part.path.read_bytes() for part in image.layers]
        assert config["rootfs"]["diff_ids"] == [part["digest"] for part in manifest["layers"]]
        assert config["config"]["User"] == image.user


def _path(reference):
    return "blobs/" + reference["digest"].replace(":", "/")
