"""Layout of a group's replica as text: what all trainers must have alike, entry by entry, so that a refusal names it.

    layout-2 model.0.weight=float32[64,20] optimizer=AdamW optimizer.0.params=4 model:Sequential optimizer.0.lr:0.01

NAME=VALUE is the *form*: a state of another form cannot be loaded.  NAME:VALUE is a *setting* of the script: the same
at all trainers that are there together, and maybe another one when a job starts again (rule 98, ADR 0273).  A replica
without entries may declare any other text, which is compared as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

_MARK: Final = "layout-2"
_PLAIN: Final = "[],;.-_/+<>'()"  # in names and values, beside letters and digits
_WORD: Final = re.compile(r"([^=:]+)([=:])(.*)")
_OF_EARLIER_RELEASES: Final = re.compile(r"\S+=[0-9a-f]{16}( \S+=[0-9a-f]{16})*( device=\w+)*")
MOST_NAMED: Final = 3  # entries in one text


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutDifference:
    """What a declared layout has other than a known one, as texts for people; nothing where the layouts are equal."""

    form: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def is_of_settings_alone(self) -> bool:
        return bool(self.settings) and not self.form

    def __str__(self) -> str:
        """The first differences, those of form before others."""
        told = (*self.form, *self.settings)
        more = f" (and {len(told) - MOST_NAMED} more)" if len(told) > MOST_NAMED else ""
        return "; ".join(told[:MOST_NAMED]) + more


def layout_text(form: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """The layout with these entries, in their order."""
    words = [f"{_quoted(name)}={_quoted(value)}" for name, value in form.items()]
    return " ".join([_MARK, *words, *(f"{_quoted(name)}:{_quoted(value)}" for name, value in settings.items())])


def compare_layouts(declared: str, known: str) -> LayoutDifference:
    """What `declared` has other than `known`.

    One that an earlier release of EDL wrote says nothing of its entries: it counts as another setting.
    """
    if declared == known:
        return LayoutDifference()
    mine, theirs = _parse(declared), _parse(known)
    if mine is not None and theirs is not None:
        return LayoutDifference(
            form=tuple(_differences(mine[0], theirs[0])), settings=tuple(_differences(mine[1], theirs[1]))
        )
    if (mine is None) != (theirs is None) and _OF_EARLIER_RELEASES.fullmatch(known if theirs is None else declared):
        return LayoutDifference(settings=("the replica is described by another release of EDL",))
    return LayoutDifference(form=(f"the replica is {declared:.80}, and was {known:.80}",))


def changed_settings(declared: str, known: str) -> Iterator[tuple[str, str]]:
    """Name and text of each setting that both have, with other values."""
    mine, theirs = _parse(declared), _parse(known)
    if mine is not None and theirs is not None:
        for name in (one for one in mine[1] if one in theirs[1]):  # in the layout's order, not in that of a set
            yield from ((name, text) for text in _differences({name: mine[1][name]}, {name: theirs[1][name]}))


def _parse(layout: str) -> tuple[dict[str, str], dict[str, str]] | None:
    """Form and settings by name; None: it has no entries."""
    mark, _, rest = layout.partition(" ")
    if mark != _MARK:
        return None
    found: dict[str, dict[str, str]] = {"=": {}, ":": {}}
    for word in rest.split():
        if (entry := _WORD.fullmatch(word)) is not None:
            found[entry[2]][unquote(entry[1])] = unquote(entry[3])
    return found["="], found[":"]


def _differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*mine, *theirs)):
        if name not in mine:
            yield f"{name} is missing, and was {theirs[name]}"
        elif name not in theirs:
            yield f"{name} is new ({mine[name]})"
        elif mine[name] != theirs[name]:
            yield f"{name} is {mine[name]}, and was {theirs[name]}"


def _quoted(text: str) -> str:
    return quote(text, safe=_PLAIN)
