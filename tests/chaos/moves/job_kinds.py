"""The kinds of jobs of a campaign, and the steps at which each can have faults.

Rows go ahead of their bucket, so jobs with sparse tables have steps that dense ones lack (rule 42).  What the ledger
can check depends on the kind too: under `afterLoss: Keep` a model holds states of two lineages (rule 30); with two
copies of each bucket the loss of one server causes no roll-back (61, 62).
"""

from __future__ import annotations

from enum import StrEnum

from tests.chaos.moves.failpoints import COPY_STEPS, ROW_STEPS, SENT_STEPS, Step


class ChaosJobKind(StrEnum):
    DENSE = "dense tables"
    ROWS = "rows"
    KEEP = "rows, the others keep what they have"
    COPIES = "rows, two copies"

    @property
    def has_rows(self) -> bool:
        return self is not ChaosJobKind.DENSE

    @property
    def keeps(self) -> bool:
        """After a loss the other servers keep what they have."""
        return self is ChaosJobKind.KEEP

    @property
    def steps(self) -> tuple[Step, ...]:
        """At which its processes can be stopped."""
        rows = ROW_STEPS if self.has_rows else ()
        return (*SENT_STEPS, *rows, *(COPY_STEPS if self.copies > 1 else ()))

    @property
    def copies(self) -> int:
        """Of each bucket, where there are servers enough."""
        return 2 if self is ChaosJobKind.COPIES else 1
