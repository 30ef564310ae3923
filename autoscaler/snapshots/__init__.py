"""A moment of a cluster as one file: what the planner saw, its policy, its memory and its clock.

A bug report is one such file: `plan` is a pure function, so the file answers as the cluster did.  `codec` turns values
into plain JSON and back, derived from the domain's dataclasses, so that a new field comes along by itself; `document`
is the file: its version, its text, and what is refused.  Pods' environments, commands and tokens are not in a view and
so in no file.  Who saves and reads: `autoscaler.cli.commands.snapshot`.
"""

from autoscaler.snapshots.snapshot_file import (
    SnapshotContent,
    format_document,
    from_document,
    parse_document,
    to_document,
)

__all__ = ["SnapshotContent", "format_document", "from_document", "parse_document", "to_document"]
