"""What `edl data audit` prints: pure, from the audit of a checkpoint to lines and to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from master.api.audit import Audit, EpochAudit

_EPOCHS_SHOWN: Final = 12


def audit_content(audit: Audit) -> Mapping[str, Any]:
    """The audit for programs; position sets as text (`0-99,120`)."""
    head = audit.head
    return {
        "uri": audit.uri,
        "manifest": head.id,
        "parent": head.parent,
        "lineage": head.lineage,
        "term": head.term,
        "dataset": {
            "name": head.dataset.name,
            "size": head.dataset.size,
            "epochs": head.dataset.epochs,
            "seed": head.dataset.seed,
        },
        "trained": sum(len(epoch.trained) for epoch in audit.epochs),
        "quarantined": sum(len(epoch.quarantined) for epoch in audit.epochs),
        "missing": sum(len(epoch.missing) for epoch in audit.epochs),
        "epochs": [
            {
                "epoch": epoch.epoch,
                "trained": len(epoch.trained),
                "quarantined": str(epoch.quarantined),
                "missing": str(epoch.missing),
            }
            for epoch in audit.epochs
        ],
        "files": [{"name": file.name, "size_bytes": file.size_bytes, "problem": file.problem} for file in audit.files],
        "orphans": list(audit.orphans),
        "problems": list(audit.problems),
        "is_sound": audit.is_sound,
    }


def audit_lines(audit: Audit) -> list[str]:
    """The audit for people."""
    content, dataset = audit_content(audit), audit.head.dataset
    size_bytes = sum(file.size_bytes for file in audit.files)
    lines = [
        f"checkpoint   {audit.uri}",
        f"manifest     {audit.head.id}  (lineage {audit.head.lineage}, term {audit.head.term})",
        f"data set     {dataset.name}: {dataset.size:,} samples x {dataset.epochs} epochs, seed {dataset.seed}",
        f"trained      {content['trained']:,} of {dataset.size * dataset.epochs:,} positions, each once",
        f"quarantined  {content['quarantined']:,}",
        f"missing      {content['missing']:,}",
        f"files        {len(audit.files)} verified, {size_bytes:,} bytes" if audit.files else "files        not read",
        "",
        f"{'epoch':>6} {'trained':>12} {'quarantined':>12} {'missing':>12}",
    ]
    lines += [_epoch_line(epoch) for epoch in audit.epochs[:_EPOCHS_SHOWN]]
    if len(audit.epochs) > _EPOCHS_SHOWN:
        lines.append(f"   ... and {len(audit.epochs) - _EPOCHS_SHOWN} more epochs (--json tells all)")
    lines += [f"beside the chain: {orphan}" for orphan in audit.orphans]
    lines += [f"PROBLEM: {problem}" for problem in audit.problems]
    return lines


def _epoch_line(epoch: EpochAudit) -> str:
    return f"{epoch.epoch:>6} {len(epoch.trained):>12,} {len(epoch.quarantined):>12,} {len(epoch.missing):>12,}"
