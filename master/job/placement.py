"""Which server owns which bucket: balanced, deterministic, and moving as few as can be when servers change.

Static in a running job for now: every roll-back places anew, among the same ordinals.
"""

from __future__ import annotations

from collections.abc import Sequence


def place(bucket_count: int, servers: int, previous: Sequence[int] = ()) -> tuple[int, ...]:
    """Owner (0 to servers - 1) of each bucket; counts differ by at most one.

    From `previous` (owners of the same buckets, of any number of servers) only buckets move that must: those of servers
    that are no more, and what a server has above its share.  Raises ValueError for no servers or no buckets.
    """
    if servers < 1 or bucket_count < 1:
        raise ValueError(f"{bucket_count} buckets cannot be placed on {servers} servers")
    if len(previous) != bucket_count:
        return tuple(bucket * servers // bucket_count for bucket in range(bucket_count))
    held = [sum(owner == server for owner in previous) for server in range(servers)]
    room = _shares(bucket_count, held)
    owners: list[int] = []
    homeless: list[int] = []
    for bucket, owner in enumerate(previous):
        if owner < servers and room[owner]:
            room[owner] -= 1
            owners.append(owner)
        else:
            homeless.append(bucket)
            owners.append(-1)
    vacancies = (server for server in range(servers) for _ in range(room[server]))
    for bucket, server in zip(homeless, vacancies, strict=True):
        owners[bucket] = server
    return tuple(owners)


def _shares(bucket_count: int, held: Sequence[int]) -> list[int]:
    """How many each may own; the odd ones go to those that hold most, for they need not give them away."""
    low, odd = divmod(bucket_count, len(held))
    by_load = sorted(range(len(held)), key=lambda server: (-held[server], server))
    shares = [low] * len(held)
    for server in by_load[:odd]:
        shares[server] += 1
    return shares
