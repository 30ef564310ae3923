"""Comparison of bucket marks, on which a checkpoint is based (rules 19 to 22).

Nothing is committed here: the commit is `job.commit`, the manifest's form `api.checkpoints.manifest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from master.api.identities import Lineage, ManifestId, Term
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.positions import PositionSet, common, union


def lists_exactly(marks: Iterable[BucketMarks], buckets: PositionSet) -> bool:
    """True if each of these buckets stands in one group of marks, and no other bucket does."""
    groups = [group.buckets for group in marks]
    return union(groups) == buckets and sum(map(len, groups)) == len(buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarksComparison:
    """The marks of all buckets, compared.  `anywhere` is D when the marks are those of HELD (rule 20)."""

    anywhere: PositionSet  # some bucket has applied it
    everywhere: PositionSet  # every bucket has applied it
    settled: PositionSet  # every bucket has applied or skipped it
    skipped_anywhere: PositionSet
    are_equal: bool  # all buckets have the same marks and the same skips


def compare_marks(marks: Iterable[BucketMarks]) -> MarksComparison:
    """Compares the marks.  `are_equal` is the only ground for a manifest: data := everywhere, quarantine := skipped
    (rule 22).
    """
    groups = tuple(marks)
    return MarksComparison(
        anywhere=union(group.applied for group in groups),
        everywhere=common(group.applied for group in groups),
        settled=common(group.applied | group.skipped for group in groups),
        skipped_anywhere=union(group.skipped for group in groups),
        are_equal=len({(group.applied, group.skipped) for group in groups}) == 1,
    )


def file_problem(file: FileRecord, lineage: Lineage, buckets: PositionSet) -> str:
    """Reason why this file cannot be part of a checkpoint; empty: it can."""
    if file.lineage != lineage:
        return f"{file.name} is of lineage {file.lineage}, not {lineage}"
    if not lists_exactly(file.marks, buckets):
        listed = union(group.buckets for group in file.marks)
        return f"{file.name} has the buckets {listed}, its server has listed {buckets}"
    return ""


def manifest_id(term: Term, lineage: Lineage, sequence: int, fresh: str) -> ManifestId:
    """A manifest id that was never issued, even if the store lost its records (M11); ids sort by time (rule 4)."""
    return ManifestId(f"{lineage:06d}-{term:010d}-{sequence:06d}-{fresh}")
