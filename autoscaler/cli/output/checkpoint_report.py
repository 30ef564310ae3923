"""Reports of `edl data audit` and `edl data verify`, for people and for scripts.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from master.api.checkpoints.audit import Audit, EpochAudit
from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.resume import describe_manifest
from master.api.checkpoints.verification import FolderVerification, VerifiedCheckpoint
from master.api.group_shares import steps_per_epoch, total_steps
from master.api.messages.generations import StateId
from master.api.positions import EMPTY

_EPOCHS_SHOWN: Final = 12
_MOST_SHOWN: Final = 60  # characters of a position set


def audit_content(audit: Audit, digest: str | None = None) -> Mapping[str, Any]:
    """The audit for scripts; position sets as text (`0-99,120`).  `digest`: of a group's replica, if it was read."""
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
        "group": _group_content(head, head.state, digest) if head.state else None,
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


def _group_content(head: Manifest, state: StateId, digest: str | None) -> Mapping[str, Any]:
    """Replica of a group: the step that its model has done, the state's id, what it has skipped."""
    return {
        "step": state.step,
        "steps": total_steps(head.dataset),
        "epochs_done": state.step // steps_per_epoch(head.dataset),
        "is_stopped": state.is_stopped,
        "state": {"lineage": state.lineage, "generation": state.generation, "step": state.step},
        "skipped": str(head.quarantine),
        "digest": digest,
    }


def audit_lines(audit: Audit, digest: str | None = None) -> list[str]:
    """The audit for people."""
    content, dataset = audit_content(audit, digest), audit.head.dataset
    size_bytes = sum(file.size_bytes for file in audit.files)
    lines = [
        f"checkpoint   {audit.uri}",
        f"manifest     {audit.head.id}  (lineage {audit.head.lineage}, term {audit.head.term})",
        f"data set     {dataset.name}: {dataset.size:,} samples x {dataset.epochs} epochs, seed {dataset.seed}",
        *(_group_lines(content["group"], dataset.epochs) if content["group"] else ()),
        f"trained      {content['trained']:,} of {dataset.size * dataset.epochs:,} positions, each once",
        f"quarantined  {content['quarantined']:,}",
        f"missing      {content['missing']:,}",
        f"files        {len(audit.files)} verified, {size_bytes:,} bytes" if audit.files else "files        not read",
        "",
        f"{'epoch':>6} {'trained':>12} {'quarantined':>12} {'missing':>12}",
    ]
    lines += [_epoch_line(epoch) for epoch in audit.epochs[:_EPOCHS_SHOWN]]
    if len(audit.epochs) > _EPOCHS_SHOWN:
        lines.append(f"   ... and {len(audit.epochs) - _EPOCHS_SHOWN} more epochs (--json lists all)")
    lines += [f"outside the chain: {orphan}" for orphan in audit.orphans]
    lines += [f"PROBLEM: {problem}" for problem in audit.problems]
    return lines


def _group_lines(group: Mapping[str, Any], epochs: int) -> Iterator[str]:
    state, skipped = group["state"], group["skipped"]
    early = "; the script ended training here" if group["is_stopped"] else ""
    of_epochs = f"{group['epochs_done']:,} of {epochs:,} epochs done"
    yield f"step         {group['step']:,} of {group['steps']:,}, {of_epochs}{early}"
    yield f"state        lineage {state['lineage']}, generation {state['generation']}, step {state['step']}"
    if skipped != str(EMPTY):
        more = " ... (--json lists all)" if len(skipped) > _MOST_SHOWN else ""
        yield f"skipped      positions {skipped[:_MOST_SHOWN]}{more}"
    yield f"digest       {group['digest'] or 'not read'}"


def _epoch_line(epoch: EpochAudit) -> str:
    return f"{epoch.epoch:>6} {len(epoch.trained):>12,} {len(epoch.quarantined):>12,} {len(epoch.missing):>12,}"


# ---- verify ---------------------------------------------------------------------------------------------------------


def verdict_content(verdict: FolderVerification) -> Mapping[str, Any]:
    """The verdict for scripts."""
    return {
        "uri": verdict.uri,
        "head": verdict.head,
        "is_intact": verdict.is_intact,
        "bytes_read": verdict.bytes_read,
        "checkpoints": [
            {
                "manifest": one.manifest.id,
                "is_intact": one.is_intact,
                "is_head": one.is_head,
                "is_retired": one.is_retired,
                "step": one.manifest.step,
                "trained": len(one.manifest.data),
                "created_at_s": one.manifest.created_at_s,
                "files": len(one.manifest.files),
                "problems": list(one.problems),
            }
            for one in verdict.checkpoints
        ],
        "unnamed": list(verdict.unnamed),
        "problems": list(verdict.problems),
    }


def verdict_lines(verdict: FolderVerification, *, now_s: float) -> list[str]:
    """The verdict for people."""
    lines = [f"folder       {verdict.uri}", f"head         {verdict.head or 'not known'}"]
    lines += [
        f"{_verdict_word(one):<12} {describe_manifest(one.manifest, now_s=now_s)}{_position_in_chain(one)}"
        for one in verdict.checkpoints
    ]
    if verdict.unnamed:
        lines.append(f"unnamed      {len(verdict.unnamed)} data files that no manifest names ({verdict.unnamed[0]})")
    lines.append(f"read         {verdict.bytes_read:,} bytes")
    return lines + [f"PROBLEM: {problem}" for problem in verdict.problems]


def _verdict_word(checked: VerifiedCheckpoint) -> str:
    return "intact" if checked.is_intact else "DAMAGED"


def _position_in_chain(checked: VerifiedCheckpoint) -> str:
    return " <- HEAD" if checked.is_head else " retired" if checked.is_retired else ""
