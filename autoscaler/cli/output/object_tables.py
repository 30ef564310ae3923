"""Tables of objects, as kubectl prints them.  Pure.  The columns are `kubernetes.cluster_tables`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from master.api.host.log_lines import escape_controls

PlainObject = Mapping[str, Any]
Cell = Callable[[PlainObject], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, and the function that reads the cell off an object.  `is_wide`: only with -o wide.

    `key`: what the column is sorted by, where the cell is no value but words; None: the cell.
    """

    title: str
    cell: Cell
    is_wide: bool = False
    key: Cell | None = None


Columns: TypeAlias = Mapping[str, Sequence[Column]]
"""By kind of object."""


def single_row(found: PlainObject) -> Sequence[PlainObject]:
    """The object itself, as its only row."""
    return (found,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """Objects of one kind, the columns of a table of them, and the rows of each."""

    objects: Sequence[PlainObject]
    columns: Columns
    rows: Callable[[PlainObject], Sequence[PlainObject]] = single_row


def format_table(objects: Sequence[PlainObject], *, is_wide: bool, columns: Columns) -> list[str]:
    """Table of objects: a heading and one aligned line each; empty for no objects."""
    if not objects:
        return []
    shown = columns_of(objects[0]["kind"], is_wide=is_wide, columns=columns)
    return align_columns([[column.title for column in shown], *(_row(shown, o) for o in objects)])


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


class GrowingTable:
    """A table that is printed line by line: a column widens with its cells and never shrinks again."""

    def __init__(self, *, is_wide: bool, has_heading: bool = True) -> None:
        self._is_wide = is_wide
        self._has_heading = has_heading
        self._widths: list[int] = []

    def add(self, found: PlainObject, columns: Columns) -> list[str]:
        """The line of this object, below the heading if it is the first."""
        shown = columns_of(found["kind"], is_wide=self._is_wide, columns=columns)
        rows = [_row(shown, found)]
        if not self._widths:
            self._widths = [0] * len(shown)
            if self._has_heading:
                rows.insert(0, [column.title for column in shown])
        for row in rows:
            self._widths = [max(width, len(text)) for width, text in zip(self._widths, row, strict=True)]
        return [_line(row, self._widths) for row in rows]


def columns_of(kind: str, *, is_wide: bool, columns: Columns) -> list[Column]:
    """The columns of a kind of object."""
    return [column for column in columns[kind] if is_wide or not column.is_wide]


def _row(columns: Sequence[Column], found: PlainObject) -> list[str]:
    return [_shown(column.cell(found)) for column in columns]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _shown(value: Any) -> str:
    return "-" if value is None or value == "" else escape_controls(str(value))
