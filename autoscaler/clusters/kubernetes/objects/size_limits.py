"""How long objects may be, in characters of text: anybody may write one of 1.5 MB, and hundreds of them (A11).

`parsing.object_trimming` shortens what is longer; `parsing.training_jobs` and `role_templates` refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TOO_LONG: Final = "edl.dev/too-long"
"""Stands in a template or a spec in place of everything that was left out because it was too long."""

LONGEST: Final = 16_384
"""Characters of what is left of an object; of a usual pod some 1,500 are."""

LONGEST_TEMPLATE: Final = 262_144
"""Of one template of a job, which is kept whole: its pods are made of it.

Of what is left of a pod under a job's label too: to every term of its template's affinity EDL adds the nodes to avoid
and the node that it is tied to, and a pod that is held short has lost them.
"""


def beside_templates(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a job says beside the templates of its pods."""
    return {
        name: {key: part for key, part in value.items() if key != "template"} if isinstance(value, dict) else value
        for name, value in spec.items()
    }


def is_longer(value: Any, most: int) -> bool:
    """Whether the object is longer, as text, than so many characters; no more than that many are looked at."""
    left, rest = most, [value]
    while rest and left >= 0:
        found = rest.pop()
        kind = type(found)  # of what JSON gives; asked of every pod of every listing
        if kind is str:
            left -= len(found) + 2
        elif kind is dict:
            left -= 2 * len(found) + sum(map(len, found))
            rest.extend(found.values())
        elif kind is list:
            left -= len(found)
            rest.extend(found)
        else:
            left -= 4
    return left < 0
