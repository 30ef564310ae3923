"""What the description of a torch replica says in a checkpoint: its version, and names that compilation leaves alone.

Without torch: `trainer_sdk.torch` writes descriptions, and `trainer_sdk.export` reads them where there is none.

`torch.compile(module)` returns a module that has the given one within, as `_orig_mod`: all names of its state dict
begin so.  Checkpoints and layouts have the names of the module that was compiled, so that a run that compiles and one
that does not share them (ADR 0274).
"""

from __future__ import annotations

from typing import Final

STATE_VERSION: Final = 1
COMPILED: Final = "_orig_mod"


def own_name(name: str) -> str:
    """The name without what compilation adds to it."""
    if COMPILED not in name:
        return name
    return ".".join(step for step in name.split(".") if step != COMPILED)
