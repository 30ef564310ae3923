"""Names of resource types on the command line, as kubectl has them: tj, node, pod, deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

RESOURCE_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "tj": ("tj", "trainingjob", "trainingjobs", "trainingjobs.edl.dev"),
    "node": ("node", "nodes", "no"),
    "pod": ("pod", "pods", "po"),
    "deployment": ("deployment", "deployments", "deploy", "deployments.apps"),
}
"""Each type with its full names and short names."""


def parse_resource_type(word: str) -> str:
    """Return the type that a word names.  Raises ValueError with what to write."""
    for known, words in RESOURCE_TYPES.items():
        if word.lower() in words:
            return known
    near = get_close_matches(word.lower(), [name for words in RESOURCE_TYPES.values() for name in words], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(RESOURCE_TYPES)}"
    raise ValueError(f"there is no type {word}; {hint}")
