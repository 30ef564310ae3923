"""Tensors as a `.pt` file that `torch.load(..., weights_only=True)` reads: a plain dict by name.

The tensors come as arrays whose dtypes NumPy may lack, as `state_encoding` has made them.  Names of one array share
their memory in the file, as tied weights do in a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

import torch

from trainer_sdk.group.port import HostArray
from trainer_sdk.torch.state_encoding import StateDecoder


def write_tensors(
    file: BinaryIO, sources: Mapping[str, str], load: Callable[[str], HostArray], dtypes: Mapping[str, str]
) -> None:
    """Writes the tensors.  `sources`: the array of each name; `dtypes`: of arrays that carry what NumPy lacks.

    Raises UsageError for a dtype that this release does not know, OSError.
    """
    loaded = {
        source: StateDecoder({source: load(source)}, dtypes).tensor(source)
        for source in dict.fromkeys(sources.values())
    }
    torch.save({name: loaded[source] for name, source in sources.items()}, file)
