"""A file system in memory: read out of Debian's packages and folders, written as the layer of an image.

What an image holds must depend on what goes into it alone: no times, no owners but the stated ones, sorted names.
`/bin`, `/sbin` and `/lib*` are links into `/usr`, as on an installed Debian, wherever a package puts its files.
"""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Final

MERGED: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
LEFT_OUT: Final = ("usr/share/doc/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/man/")
BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, a link (with `target`) or a folder (neither data nor target)."""

    mode: int = 0o755
    owner: int = 0
    data: bytes | None = None
    target: str = ""


Tree = dict[str, Entry]
"""By path, without a leading slash."""


def file(data: bytes | str, *, mode: int = 0o644, owner: int = 0) -> Entry:
    return Entry(mode=mode, owner=owner, data=data.encode() if isinstance(data, str) else data)


def folder(*, mode: int = 0o755, owner: int = 0) -> Entry:
    return Entry(mode=mode, owner=owner)


def link(target: str) -> Entry:
    return Entry(mode=0o777, target=target)


def read_tar(source: IO[bytes]) -> Tree:
    """Contents of a package or layer, without documentation; hard links become files of their own."""
    tree: Tree = {}
    with tarfile.open(fileobj=source, mode="r|*") as archive:
        for member in archive:
            path = _merged(member.name)
            if not path or path.startswith(LEFT_OUT):
                continue
            if member.isdir():
                tree.setdefault(path, folder(mode=member.mode, owner=member.uid))
            elif member.issym() and path.removeprefix("usr/") not in MERGED:  # those links are everywhere: merged_links
                tree[path] = link(member.linkname)
            elif member.islnk():
                tree[path] = tree[_merged(member.linkname)]
            elif member.isfile():
                opened = archive.extractfile(member)
                tree[path] = file(opened.read() if opened else b"", mode=member.mode, owner=member.uid)
    return tree


def read_folder(root: Path, *, at: str = "") -> Tree:
    """A folder of this machine, below `at`; everything belongs to root."""
    tree: Tree = {}
    for path in sorted(root.rglob("*")):
        name = str(PurePosixPath(at) / path.relative_to(root).as_posix())
        if path.is_symlink():
            tree[name] = link(str(path.readlink()))
        elif path.is_dir():
            tree[name] = folder()
        else:
            tree[name] = file(path.read_bytes(), mode=0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    return tree


def merged_links() -> Tree:
    """The links of MERGED, and what they lead to."""
    return {**{name: link(f"usr/{name}") for name in MERGED}, **{f"usr/{name}": folder() for name in MERGED}}


def write_tar(tree: Tree, target: Path) -> str:
    """A layer; its SHA-256.  The same tree gives the same bytes."""
    with target.open("wb") as output, tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in _with_parents(tree):
            archive.addfile(_member(path, entry), io.BytesIO(entry.data) if entry.data is not None else None)
    return sha256_of(target)


def unpack(tar: Path, root: Path) -> None:
    """Write a layer's files over existing ones (as root)."""
    with tarfile.open(tar) as archive:
        archive.extractall(root, filter="fully_trusted")  # our own, and a system has files that filters refuse


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _with_parents(tree: Tree) -> Iterator[tuple[str, Entry]]:
    """Sorted, so that a folder comes before what it holds, with the folders that no entry names."""
    parents = {str(parent) for path in tree for parent in PurePosixPath(path).parents} - {"."}
    whole = {**{path: folder() for path in parents}, **tree}
    return iter(sorted(whole.items()))


def _member(path: str, entry: Entry) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.mode, member.uid, member.gid = entry.mode, entry.owner, entry.owner
    if entry.data is not None:
        member.size = len(entry.data)
    elif entry.target:
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
    else:
        member.type = tarfile.DIRTYPE
    return member


def _merged(name: str) -> str:
    path = name.removeprefix("./").strip("/")
    if path == ".":
        return ""
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


def owned(tree: Tree, owner: int) -> Tree:
    """The same, of another owner."""
    return {path: replace(entry, owner=owner) for path, entry in tree.items()}
