"""Kinds of objects on the command line, by kubectl's names: tj, node, pod, deployment, gpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

OBJECT_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "tj": ("tj", "trainingjob", "trainingjobs", "trainingjobs.edl.dev"),
    "node": ("node", "nodes", "no"),
    "pod": ("pod", "pods", "po"),
    "deployment": ("deployment", "deployments", "deploy", "deployments.apps"),
    "gpus": ("gpus", "gpu", "nodegpus", "nodegpus.edl.dev"),
}
"""Each kind with its full names and short names."""


def parse_object_kind(name: str) -> str:
    """Return the kind of this name.  Raises ValueError with the names to write."""
    for kind, names in OBJECT_KINDS.items():
        if name.lower() in names:
            return kind
    near = get_close_matches(name.lower(), [known for names in OBJECT_KINDS.values() for known in names], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(OBJECT_KINDS)}"
    raise ValueError(f"there is no kind {name}; {hint}")
