"""`python -m trainer_sdk.export URI OUT`: a model of a checkpoint as a file or a folder; `edl export` runs it.

Exit codes are those of `edl`: 1 damaged or unreadable, 2 a wrong command line, 3 no checkpoint, 4 refused, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.storage import Storage, open_storage
from master.api.errors import ContractError, StorageMissingError
from master.api.host.log_lines import escape_controls
from master.api.host.progress_lines import ProgressLines
from trainer_sdk.errors import EdlError, UsageError
from trainer_sdk.export.saved_checkpoint import SavedCheckpoint, check_files, find_manifest, open_checkpoint
from trainer_sdk.export.saved_tensors import SavedPart, choose_part
from trainer_sdk.export.tensor_files import check_folder, check_out, write_folder, write_part

_FAILED, _NOT_FOUND, _REFUSED, _INTERRUPTED = 1, 3, 4, 130
_MOST_ATTEMPTS: Final = 3
"""Most attempts to read the last checkpoint while its job runs and replaces it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code.  What is printed besides goes to standard error."""
    options = _parser().parse_args(argv)
    if options.out is None and not (options.lists or options.digest):
        _parser().error("OUT is missing: name a file, model.safetensors, or ask with --list what there is")
    try:
        content, lines = _run(options, open_storage(options.uri))
    except UsageError as error:
        return _end(_REFUSED, str(error))
    except StorageMissingError as error:
        return _end(_NOT_FOUND, str(error))
    except (ContractError, EdlError) as error:
        return _end(_FAILED, str(error))
    except OSError as error:
        return _end(_FAILED, f"{error.filename or options.out or options.uri}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _INTERRUPTED
    print(json.dumps(content, indent=2) if options.is_json else escape_controls("\n".join(lines)))  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer_sdk.export", description="Write a model of a checkpoint as a file of another tool."
    )
    parser.add_argument("uri", metavar="URI", help="checkpoint folder, a path or a URI")
    parser.add_argument("out", metavar="OUT", type=Path, nargs="?", help="file: .safetensors, .pt (needs torch), .npz")
    parser.add_argument("--part", help="replicated part (default: model, or the only one; with --format dcp all)")
    parser.add_argument("--format", choices=["dcp"], help="OUT is a folder for torch.distributed.checkpoint")
    parser.add_argument("--checkpoint", metavar="ID", help="another checkpoint than the last one")
    parser.add_argument("--list", dest="lists", action="store_true", help="list the parts, write nothing")
    parser.add_argument("--digest", action="store_true", help="with --list: digest of a group's replica, read whole")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    parser.add_argument("--json", dest="is_json", action="store_true", help="print one JSON object")
    return parser


def _run(options: argparse.Namespace, storage: Storage) -> tuple[dict[str, Any], list[str]]:
    """Export, and what is to be printed, as JSON and as lines."""
    is_listed = options.out is None or options.lists
    if options.format and options.out is not None:
        check_folder(options.out)
    elif not is_listed:
        check_out(options.out, may_replace=options.force)  # before hours of reading
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        manifest = find_manifest(storage, options.checkpoint)
        try:
            if is_listed:
                return _list(options, open_checkpoint(storage, manifest))
            return _export(options, storage, manifest)
        except StorageMissingError:  # its job has replaced it meanwhile, or it is damaged
            if attempt == _MOST_ATTEMPTS or options.checkpoint or find_manifest(storage, None).id == manifest.id:
                raise
    raise AssertionError("unreachable")


def _list(options: argparse.Namespace, saved: SavedCheckpoint) -> tuple[dict[str, Any], list[str]]:
    content, lines = _describe(options.uri, saved.manifest)
    content["parts"] = [
        {
            "part": part.name,
            "size_bytes": part.size_bytes,
            "tensors": _tensors(part),
            "left_out": list(part.left_out),
        }
        for part in saved.parts.values()
    ]
    if options.digest:
        content["digest"] = saved.digest()
        lines.append(f"digest       {content['digest'] or 'none: this job is no group'}")
    lines += ["", f"{'part':<20} {'tensors':>8} {'bytes':>16}"]
    lines += [f"{part.name:<20} {len(part.tensors):>8,} {part.size_bytes:>16,}" for part in saved.parts.values()]
    return content, lines


def _export(options: argparse.Namespace, storage: Storage, manifest: Manifest) -> tuple[dict[str, Any], list[str]]:
    out: Path = options.out
    check_files(storage, manifest, ProgressLines("read"))
    parts, tell = open_checkpoint(storage, manifest).parts, ProgressLines("written")
    about = {"checkpoint": str(manifest.id), "step": str(manifest.step)}
    if options.format:
        chosen = [choose_part(parts, options.part)] if options.part else list(parts.values())
        part, size_bytes = write_folder(out, chosen, about=about, on_progress=tell)
    else:
        part = choose_part(parts, options.part)
        about |= {"part": part.name}
        size_bytes = write_part(out, part, about=about, may_replace=options.force, on_progress=tell)
    content, lines = _describe(options.uri, manifest)
    content |= {"out": str(out), "size_bytes": size_bytes, "part": part.name}
    content |= {"tensors": _tensors(part), "left_out": list(part.left_out)}
    lines = [f"exported     {out}, {size_bytes:,} bytes", *lines]
    lines.append(f"part         {part.name}: {len(part.tensors):,} tensors, {part.size_bytes:,} bytes")
    if part.left_out:
        more = f" and {len(part.left_out) - 1:,} more (--json lists all)" if len(part.left_out) > 1 else ""
        lines.append(f"left out     {part.left_out[0]}{more}")
    return content, lines


def _describe(uri: str, manifest: Manifest) -> tuple[dict[str, Any], list[str]]:
    """The checkpoint, as JSON and as lines."""
    samples = manifest.dataset.size * manifest.dataset.epochs
    content = {
        "uri": uri,
        "checkpoint": manifest.id,
        "step": manifest.step,
        "trained": len(manifest.data),
        "samples": samples,
    }
    trained = f"{len(manifest.data):,} of {samples:,} samples"
    return content, [f"checkpoint   {manifest.id} in {uri}", f"step         {manifest.step:,} ({trained})"]


def _tensors(part: SavedPart) -> list[dict[str, Any]]:
    return [{"name": name, "dtype": one.dtype, "shape": list(one.shape)} for name, one in part.tensors.items()]


def _end(code: int, message: str) -> int:
    print(escape_controls(f"edl: {message}"), file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
