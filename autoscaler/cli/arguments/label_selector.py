"""`-l`: which objects a command shows, by their labels, as kubectl has it.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

_KEY: Final = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?"
_VALUE: Final = r"[\w.-]*"
_ABSENT: Final = re.compile(rf"!\s*({_KEY})")
_PRESENT: Final = re.compile(rf"({_KEY})")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_LISTED: Final = re.compile(rf"({_KEY})\s+(in|notin)\s+\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)")
_COMMA: Final = re.compile(r",(?![^(]*\))")  # but not within brackets


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """What one label has to be.  `values`: None for any value, if it is there at all."""

    key: str
    values: frozenset[str] | None
    is_negated: bool

    def holds(self, labels: Mapping[str, Any]) -> bool:
        """True if the labels meet it; a label that is missing differs from every value, as Kubernetes has it."""
        found = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return found is not self.is_negated


class LabelSelector(click.ParamType[tuple[LabelRequirement, ...]]):
    """`a=b,c!=d`, `a in (b, c)`, `a notin (b, c)`, `a`, `!a`: requirements, all of which have to hold."""

    name = "selector"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[LabelRequirement, ...]:
        """See click."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(_parse(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _parse(text: str) -> Iterator[LabelRequirement]:
    for word in map(str.strip, _COMMA.split(text)):
        if match := _EQUAL.fullmatch(word):
            yield LabelRequirement(key=match[1], values=frozenset({match[3]}), is_negated=match[2] == "!=")
        elif match := _LISTED.fullmatch(word):
            values = frozenset(map(str.strip, match[3].split(",")))
            yield LabelRequirement(key=match[1], values=values, is_negated=match[2] == "notin")
        elif match := _ABSENT.fullmatch(word) or _PRESENT.fullmatch(word):
            yield LabelRequirement(key=match[1], values=None, is_negated=word.startswith("!"))
        else:
            raise ValueError(
                f"{word!r} selects no label: write KEY=VALUE, as in edl.dev/job=digits,edl.dev/role!=master"
            )
