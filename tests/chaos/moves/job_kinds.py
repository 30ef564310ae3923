"""The kinds of jobs that a campaign strikes, and at which steps each can be struck.

Rows go ahead of their bucket, so jobs with sparse tables have steps that dense ones lack (rule 42).  What the ledger
may ask of a job depends on its kind: where the others keep what they have after a loss (rule 30), a model is of two
ages; where buckets have two copies (61, 62), the loss of one server takes nothing back.
"""

from __future__ import annotations

from enum import StrEnum

from tests.chaos.moves.failpoints import COPY_STEPS, ROW_STEPS, SENT_STEPS, Step


class JobKind(StrEnum):
    DENSE = "dense tables"
    ROWS = "rows"
    KEEP = "rows, the others keep what they have"
    COPIES = "rows, two copies"

    @property
    def has_rows(self) -> bool:
        return self is not JobKind.DENSE

    @property
    def keeps(self) -> bool:
        """After a loss the other servers keep what they have."""
        return self is JobKind.KEEP

    @property
    def steps(self) -> tuple[Step, ...]:
        """At which its processes can be stopped."""
        rows = ROW_STEPS if self.has_rows else ()
        return (*SENT_STEPS, *rows, *(COPY_STEPS if self.copies > 1 else ()))

    @property
    def copies(self) -> int:
        """Of each bucket, where there are servers enough."""
        return 2 if self is JobKind.COPIES else 1
