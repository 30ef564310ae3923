"""Words that members exchange: their states in a sync (rule 70), and the control word of a step (rules 67, 81, 84).

Each is one small JSON text that goes through an all-gather.  Pure.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Final

from master.api.identities import Lineage
from master.api.messages.generations import Generation, StateId
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import WireError

CANNOT_COPY: Final = -1
MAX_WORD_BYTES: Final = 16384
MAX_ENTRY_BYTES: Final = 1 << 20  # 65,536 skipped ranges are 1 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncEntry:
    """A member's state as it enters a generation, or None: nothing."""

    digest: str  # of the record and the layout
    state: StateId | None
    skipped: PositionSet = EMPTY
    is_fresh: bool = False  # its replica is as the script made it, and may become the first state


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWord:
    """A member's control word of a step."""

    generation: int
    step: int
    prepared: int = 0  # number of the planned generation that this member is ready for; 0: none
    copy_shards: int = 0  # it wishes for a copy in so many shards; 0: for none; CANNOT_COPY: it writes an older one
    layout: str = ""
    sample: str = ""  # "POSITION DIGEST" of a record that all members have read; empty: none
    replica: str = ""  # digests of the parts of its replica, as the step begins; empty: it is not compared
    wants_comparison: bool = False  # of the state after this step
    is_after_last: bool = False  # no step: after the last one the replicas are compared once more


_WORD_FIELDS: Final = tuple(field.name for field in fields(StepWord))


@lru_cache(maxsize=8)
def layout_digest(layout: str) -> str:
    """Short for each step's word, however many parts a replica has."""
    return hashlib.sha256(layout.encode()).hexdigest()[:16]


def record_digest(record: Generation, layout: str) -> str:
    """Equal for members that mean the same record and the same layout."""
    return hashlib.sha256(json.dumps([asdict(record), layout], sort_keys=True).encode()).hexdigest()[:32]


def encode_entry(entry: SyncEntry) -> bytes:
    return json.dumps(asdict(entry)).encode()


def decode_entry(data: bytes) -> SyncEntry:
    """Raises WireError."""
    try:
        fields: dict[str, Any] = json.loads(data)
        state = fields["state"]
        return SyncEntry(
            digest=str(fields["digest"]),
            state=None
            if state is None
            else StateId(
                lineage=Lineage(int(state["lineage"])),
                generation=int(state["generation"]),
                step=int(state["step"]),
                is_stopped=bool(state["is_stopped"]),
            ),
            skipped=_positions(fields["skipped"]["bounds"]),
            is_fresh=bool(fields["is_fresh"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"a member's entry of the sync cannot be read ({error}): run one release of EDL") from error


def encode_word(word: StepWord) -> bytes:
    return json.dumps({name: getattr(word, name) for name in _WORD_FIELDS}).encode()


def decode_word(data: bytes) -> StepWord:
    """Raises WireError."""
    try:
        fields: dict[str, Any] = json.loads(data)
        return StepWord(
            generation=int(fields["generation"]),
            step=int(fields["step"]),
            prepared=int(fields["prepared"]),
            copy_shards=int(fields["copy_shards"]),
            layout=str(fields["layout"]),
            sample=str(fields["sample"]),
            replica=str(fields["replica"]),
            wants_comparison=bool(fields["wants_comparison"]),
            is_after_last=bool(fields["is_after_last"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"a member's control word cannot be read ({error}): run one release of EDL") from error


def _positions(bounds: list[int]) -> PositionSet:
    return PositionSet.from_ranges(zip(bounds[::2], bounds[1::2], strict=True))
