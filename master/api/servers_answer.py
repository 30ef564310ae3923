"""The answer to SetServers: how many parameter servers a job is to have.

The cluster side sets n repeatedly; it wants pods 0 to n - 1.  The answer is the number that holds, which
every later master knows.  Servers at n and above are emptied and released; a newcomer below n gets its share (rule
49).
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.document import decode_document
from master.api.errors import DocumentError
from master.api.messages.to_members import Refused

MOST_SERVERS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersAnswer:
    """`count` is stored durably, whatever was requested; it may be anything from `least` to `most`.

    `replaces` says which moves for an earlier number were still under way; empty: none were.
    """

    count: int
    least: int
    most: int
    replaces: str = ""
    refused: Refused | None = None  # what was asked cannot be; `count` is as before


def decode_answer(data: bytes) -> ServersAnswer:
    """A master's answer, with every number in its range (A11).  Raises DocumentError, naming the field."""
    answer = decode_document(ServersAnswer, data)
    for name in ("count", "least", "most"):
        if not 0 <= getattr(answer, name) <= MOST_SERVERS:
            raise DocumentError(name, f"is out of range: 0 to {MOST_SERVERS}")
    return answer
