"""Hello: the first message of each side of a stream, with its job and the wire versions that it speaks.

Skew rule: two sides talk when their ranges of versions overlap, in the highest version that both know.  EDL 0.1.0
speaks version 1 alone.  A later master that still understands members of version 1 leaves WIRE_OLDEST at 1; then an
upgrade goes master first, members after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from master.api.errors import MessageError

WIRE_NEWEST: Final = 1
WIRE_OLDEST: Final = 1
ANSWERED_METADATA_KEY: Final = "edl-answered"
"""In the trailing metadata of what a master refuses: gRPC says UNAVAILABLE of one that does not lead and of silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    job: str
    newest: int = WIRE_NEWEST
    oldest: int = WIRE_OLDEST
    software: str = ""


def agreed_version(mine: Hello, theirs: Hello) -> int:
    """The wire version to speak.  Raises MessageError for two jobs, or when no version is shared."""
    if mine.job != theirs.job:
        raise MessageError(
            "hello.job", f"{theirs.job!r} called the master of {mine.job!r}: check EDL_JOB and EDL_MASTER"
        )
    version = min(mine.newest, theirs.newest)
    if version < max(mine.oldest, theirs.oldest):
        raise MessageError(
            "hello.newest",
            f"one side speaks wire versions {theirs.oldest} to {theirs.newest}, the other {mine.oldest} to "
            f"{mine.newest}: upgrade the older one (master first, then members)",
        )
    return version
