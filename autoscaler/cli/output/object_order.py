"""`--sort-by`: objects and rows in the order of a column, or of a field as kubectl names it.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.output.object_tables import Cell, ObjectList, PlainObject, single_row

_PATH: Final = re.compile(r"\{?(?P<path>(\.[A-Za-z0-9_-]+)+)\}?")


def sort_objects(found: ObjectList, by: str, *, are_rows: bool) -> ObjectList:
    """Return the objects by a column's title or by a path such as `.metadata.name`, rising; those without it last.

    `are_rows`: their rows take their place, those of all objects together; else each object stands by its first row.
    Among equals the order stays.  Raises CommandError (USAGE) for another word.
    """
    if not found.objects:
        return found
    key = _key_of(found, by)
    if are_rows:
        rows = [row for one in found.objects for row in found.rows(one)]
        return replace(found, objects=sorted(rows, key=lambda row: _place(key(row))), rows=single_row)
    return replace(found, objects=sorted(found.objects, key=lambda one: _place(next(map(key, found.rows(one)), None))))


def _key_of(found: ObjectList, by: str) -> Cell:
    if path := _PATH.fullmatch(by):
        names = path["path"].split(".")[1:]
        return lambda row: _value_at(row, names)
    columns = found.columns[found.objects[0]["kind"]]
    for column in columns:
        if column.title.lower() == by.lower():
            return column.key or column.cell
    known = ", ".join(column.title.lower() for column in columns)
    raise CommandError(Exit.USAGE, f"--sort-by {by}: write a field, such as .metadata.name, or one of {known}")


def _value_at(row: PlainObject, names: list[str]) -> Any:
    value: Any = row
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _place(value: Any) -> tuple[int, float, str]:
    """Numbers, then texts, then nothing."""
    if value is None or value == "":
        return 2, 0.0, ""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)
