"""Size limits of objects, in characters of text: users may write hundreds of 1.5 MB each (A11).

`parsing.object_trimming` shortens what is longer; `parsing.training_jobs` and `role_templates` refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TOO_LONG: Final = "edl.dev/too-long"
"""Stands in a template or a spec in place of everything that was left out because it was too long."""

LONGEST: Final = 16_384
"""Characters of a trimmed object; a usual pod has some 1,500."""

LONGEST_TEMPLATE: Final = 262_144
"""Characters of one template of a job, which is kept whole because pods are created from it.

It limits a trimmed pod under a job's label too: to every term of its affinity EDL adds the nodes to avoid and the node
that the pod is tied to, and the short form of a pod lacks them.
"""


def beside_templates(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's spec without the templates of its pods."""
    return {
        name: {key: part for key, part in value.items() if key != "template"} if isinstance(value, dict) else value
        for name, value in spec.items()
    }


def is_longer(value: Any, most: int) -> bool:
    """True if the object is longer than `most` characters of text; stops counting there."""
    left, pending = most, [value]
    while pending and left >= 0:
        found = pending.pop()
        kind = type(found)  # one of JSON's types; called for every pod of every listing
        if kind is str:
            left -= len(found) + 2
        elif kind is dict:
            left -= 2 * len(found) + sum(map(len, found))
            pending.extend(found.values())
        elif kind is list:
            left -= len(found)
            pending.extend(found)
        else:
            left -= 4
    return left < 0
