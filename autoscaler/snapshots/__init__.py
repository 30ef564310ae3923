"""Cluster snapshots: one file with everything that a plan depends on (view, policy, the planner's history, clock).

A bug report is one such file: `plan` is a pure function, so the file answers as the cluster did.  `codec` derives the
JSON form from the domain's dataclasses, `snapshot_file` is the file with its version and its text.  A view has no
environment, command or token of a pod, so no file has.  Command: `autoscaler.cli.commands.snapshot`.
"""

from autoscaler.snapshots.snapshot_file import (
    SnapshotContent,
    format_document,
    from_document,
    parse_document,
    to_document,
)

__all__ = ["SnapshotContent", "format_document", "from_document", "parse_document", "to_document"]
