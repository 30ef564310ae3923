"""A part of a checkpoint as a file of another tool, complete or not there at all.

`.safetensors` is written here (ADR 0240): eight bytes of length, a JSON header with dtype, shape and place of each
tensor, and the tensors' bytes, little-endian, without holes.  `.npz` is a NumPy archive; bfloat16, which NumPy lacks,
becomes float32 there, which holds each of its values exactly.  `.pt` is written by `trainer_sdk.torch`.

Tensors are read and written one after another, so that one of them is in memory at a time; torch holds all of a `.pt`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import BinaryIO, Final

import numpy as np

from master.api.host.file_ownership import open_new
from trainer_sdk.errors import UsageError
from trainer_sdk.export.saved_tensors import SavedPart, SavedTensor
from trainer_sdk.group.array_files import DTYPE_LABELS, METADATA, bytes_of, encode_header, little_endian
from trainer_sdk.group.port import HostArray

_FILE_OF_FOLDER: Final = "model-00001-of-00001.safetensors"
ByteProgress = Callable[[int, int], None]  # bytes done, of all


def check_out(out: Path, *, may_replace: bool) -> None:
    """Raises UsageError for a name that says no format, and for a file that is there already."""
    if out.suffix not in _WRITERS:
        raise UsageError(f"{out}: the end of the name chooses the format; write one of {', '.join(_WRITERS)}")
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"{out}: is a folder" if out.is_dir() else f"{out}: there is no folder {out.parent}")
    if out.exists() and not may_replace:
        raise UsageError(f"{out}: exists already; --force replaces it")


def check_folder(out: Path) -> None:
    """Raises UsageError unless `out` can become a new folder."""
    if not out.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.parent}")
    if out.exists():
        raise UsageError(f"{out}: exists already; name a new folder, since its reader takes all files that it finds")


def write_folder(
    out: Path, parts: Iterable[SavedPart], *, about: Mapping[str, str], on_progress: ByteProgress
) -> tuple[SavedPart, int]:
    """Writes these parts as a folder that torch's distributed checkpoints are read from (ADR 0255).

    A tensor is named there by its part and its own name, "model.fc.weight".  Returns what was written, and its size.
    Raises UsageError, OSError, and what loading raises; then there is no folder.
    """
    check_folder(out)
    tensors = {f"{part.name}.{name}": one for part in parts for name, one in part.tensors.items()}
    left_out = tuple(f"{part.name}.{path}" for part in parts for path in part.left_out)
    whole = SavedPart(name="all", tensors=tensors, left_out=left_out)
    partial = _partial_of(out)
    partial.mkdir()
    try:
        size_bytes = write_part(
            partial / _FILE_OF_FOLDER, whole, about=about, may_replace=False, on_progress=on_progress
        )
        check_folder(out)
        partial.rename(out)
    except BaseException:
        rmtree(partial, ignore_errors=True)
        raise
    return whole, size_bytes


def write_part(
    out: Path, part: SavedPart, *, about: Mapping[str, str], may_replace: bool, on_progress: ByteProgress
) -> int:
    """Writes the part in the format of `out`, and returns its size in bytes.

    `about` is kept in the file where its format has a place.  Raises UsageError, OSError, and what loading raises.
    """
    check_out(out, may_replace=may_replace)
    with _replacing(out, may_replace=may_replace) as file:
        _WRITERS[out.suffix](file, part, about, on_progress)
        return file.tell()


def _partial_of(out: Path) -> Path:
    """A name that nobody else uses: processes of two containers have the same id."""
    return out.with_name(f".{out.name}.part-{token_hex(4)}")


@contextmanager
def _replacing(out: Path, *, may_replace: bool) -> Iterator[BinaryIO]:
    """A new file that has the name `out` once it is whole; nothing is left behind otherwise."""
    partial = _partial_of(out)
    try:
        with open_new(partial) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check_out(out, may_replace=may_replace)
        partial.replace(out)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _write_safetensors(file: BinaryIO, part: SavedPart, about: Mapping[str, str], on_progress: ByteProgress) -> None:
    ordered = sorted(part.tensors.items(), key=lambda item: (-item[1].carrier.itemsize, item[0]))  # aligned by this
    for name, tensor in ordered:
        if name == METADATA or tensor.dtype not in DTYPE_LABELS:
            problem = "has a name that the format keeps for itself" if name == METADATA else f"is {tensor.dtype}"
            raise UsageError(f"{name}: {problem}; .safetensors cannot hold it, write .npz or .pt")
    placed = {name: (DTYPE_LABELS[one.dtype], one.shape, one.size_bytes) for name, one in ordered}
    file.write(encode_header(placed, {"format": "pt", **about}))
    done, total = 0, part.size_bytes
    for _, tensor in ordered:
        file.write(bytes_of(little_endian(tensor.load())))
        done += tensor.size_bytes
        on_progress(done, total)


def _write_npz(file: BinaryIO, part: SavedPart, _about: Mapping[str, str], on_progress: ByteProgress) -> None:
    done, total = 0, part.size_bytes
    with zipfile.ZipFile(file, "w") as archive:  # not np.savez, whose own parameters no array may be named after
        for name, tensor in part.tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _as_numbers(name, tensor), allow_pickle=False)
            done += tensor.size_bytes
            on_progress(done, total)


def _as_numbers(name: str, tensor: SavedTensor) -> HostArray:
    if not tensor.is_carried:
        return tensor.load()
    if tensor.dtype != "bfloat16":
        raise UsageError(f"{name}: is {tensor.dtype}; .npz cannot hold it, write .safetensors or .pt")
    return (tensor.load().astype(np.uint32) << 16).view(np.float32)


def _write_pt(file: BinaryIO, part: SavedPart, _about: Mapping[str, str], on_progress: ByteProgress) -> None:
    try:
        from trainer_sdk.torch.tensor_file import write_tensors  # noqa: PLC0415  torch, which few exports need
    except ImportError as error:
        raise UsageError(
            f".pt needs torch where this runs ({error}); write .safetensors, which torch reads, or run it in the job's "
            "image: python -m trainer_sdk.export"
        ) from error
    by_source = {tensor.source: tensor for tensor in part.tensors.values()}
    done, total = 0, sum(tensor.size_bytes for tensor in by_source.values())

    def load(source: str) -> HostArray:
        nonlocal done
        array = by_source[source].load()
        done += array.nbytes
        on_progress(done, total)
        return array

    dtypes = {source: tensor.dtype for source, tensor in by_source.items() if tensor.is_carried}
    write_tensors(file, {name: tensor.source for name, tensor in part.tensors.items()}, load, dtypes)


_WRITERS: Final[Mapping[str, Callable[[BinaryIO, SavedPart, Mapping[str, str], ByteProgress], None]]] = {
    ".safetensors": _write_safetensors,
    ".pt": _write_pt,
    ".npz": _write_npz,
}
