"""Parts of a group's replica, by what its description says of them; torch is not needed.

`trainer_sdk.torch.state_encoding` writes the description: nested states in which {"tensor": NAME} stands for an array.
A script in NumPy gives arrays without parts: they are one part, the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trainer_sdk.errors import CheckpointError
from trainer_sdk.export.saved_tensors import MODEL, SavedPart, SavedTensor
from trainer_sdk.export.stored_arrays import StoredArrays
from trainer_sdk.group.port import CapturedState
from trainer_sdk.replica_description import STATE_VERSION, own_name


def replica_parts(file: str, captured: CapturedState, arrays: StoredArrays) -> dict[str, SavedPart]:
    """The parts by name.  `arrays` holds the arrays of `captured`.  Raises CheckpointError, naming the file."""
    parts = _encoded_parts(file, captured.meta)
    if parts is None:
        return {MODEL: SavedPart(name=MODEL, tensors={name: _tensor(arrays, name, captured.dtypes) for name in arrays})}
    found: dict[str, SavedPart] = {}
    for name, encoded in parts.items():
        places = dict(_places(encoded, ""))
        if missing := [source for source in places.values() if source is not None and source not in arrays]:
            raise CheckpointError(file, f"its part {name!r} lacks the array {missing[0]!r}")
        found[name] = SavedPart(
            name=name,
            tensors={
                path: _tensor(arrays, source, captured.dtypes) for path, source in places.items() if source is not None
            },
            left_out=tuple(path for path, source in places.items() if source is None),
        )
    return found


def _encoded_parts(file: str, meta: str) -> dict[str, Any] | None:
    """The encoded state of each part; None: the script did not name parts."""
    try:
        described = json.loads(meta)
    except ValueError:
        return None  # the script's own text
    if not isinstance(described, dict) or not isinstance(parts := described.get("parts"), dict):
        return None
    if described.get("version") != STATE_VERSION:
        raise CheckpointError(
            file, f"holds a state of version {described.get('version')}, this release reads {STATE_VERSION}"
        )
    return parts


def _places(encoded: Any, path: str) -> Iterator[tuple[str, str | None]]:
    """Path and array of each value of an encoded state; no array for what is no tensor."""
    match encoded:
        case {"tensor": str(source)} | {"array": str(source)}:
            yield path, source
        case {"dict": list(pairs)} | {"counter": list(pairs)}:
            for key, held in pairs:
                yield from _places(held, _join(path, key))
        case list(items) | {"tuple": list(items)} | {"set": list(items)}:
            for number, held in enumerate(items):
                yield from _places(held, _join(path, number))
        case _:
            yield path, None


def _join(path: str, key: object) -> str:
    """The path within; names are those of the module that was compiled, as torch's own checkpoints have them."""
    return ".".join(filter(None, (path, own_name(str(key)))))


def _tensor(arrays: StoredArrays, source: str, dtypes: Mapping[str, str]) -> SavedTensor:
    one = arrays.shapes[source]
    carrier = np.dtype(one.dtype)
    return SavedTensor(
        dtype=dtypes.get(source, carrier.name),
        carrier=carrier,
        shape=one.shape,
        source=source,
        load=lambda: arrays[source],
    )
