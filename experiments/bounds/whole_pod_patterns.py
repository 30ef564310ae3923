"""All ways to fill one room that leave no room for one pod more.

A room is a vector of amounts, an item a request for the same amounts.  Nodes whose rooms admit the same patterns are
the same node to every question that counts pods: that symmetry makes the exact bounds cheap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

Vector = tuple[int, ...]
Pattern = tuple[int, ...]

PATTERN_LIMIT: Final = 2_000
"""Of one room; beyond it pods are so small beside nodes that whole numbers hardly matter: use the linear bound."""


class TooManyPatternsError(ValueError):
    """A room can be filled in more ways than can be listed."""


def list_patterns(room: Vector, requests: tuple[Vector, ...]) -> tuple[Pattern, ...]:
    """Return the counts per request that fit into `room` and cannot be raised, sorted; one empty pattern if none fits.

    Raises:
        TooManyPatternsError: there are more than `PATTERN_LIMIT`.
    """
    found = _try_list(room, requests)
    if found is None:
        raise TooManyPatternsError(f"a room of {room} can be filled in more than {PATTERN_LIMIT} ways")
    return found


def copies(room: Vector, request: Vector) -> int:
    """Number of times that `request` fits; 0 for an empty request."""
    return max(0, min((have // want for have, want in zip(room, request, strict=True) if want > 0), default=0))


@lru_cache(maxsize=200_000)
def _try_list(room: Vector, requests: tuple[Vector, ...]) -> tuple[Pattern, ...] | None:
    """Remember the answer, also that there are too many."""
    found: list[Pattern] = []
    if not _extend(room, requests, (), found):
        return None
    return tuple(sorted(pattern for pattern in found if not _can_grow(pattern, room, requests)))


def _extend(room: Vector, requests: tuple[Vector, ...], chosen: Pattern, found: list[Pattern]) -> bool:
    """Choose the count of the next request, the last one as often as it fits; False once there are too many."""
    request = requests[len(chosen)]
    most = copies(room, request)
    if len(chosen) + 1 == len(requests):
        found.append((*chosen, most))
        return len(found) <= PATTERN_LIMIT
    for count in range(most + 1):
        left = tuple(have - count * want for have, want in zip(room, request, strict=True))
        if not _extend(left, requests, (*chosen, count), found):
            return False
    return True


def _can_grow(pattern: Pattern, room: Vector, requests: tuple[Vector, ...]) -> bool:
    left = list(room)
    for count, request in zip(pattern, requests, strict=True):
        left = [have - count * want for have, want in zip(left, request, strict=True)]
    return any(copies(tuple(left), request) for request in requests)
