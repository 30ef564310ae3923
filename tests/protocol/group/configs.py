"""The small groups that are explored.  Two trainers, two steps of two positions, unless it says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.protocol.group.settings import GroupFaults, GroupSetting

CONFIGS: Final[Mapping[str, GroupSetting]] = {
    "alone": GroupSetting(start=1),
    "calm": GroupSetting(),
    "join": GroupSetting(fresh=1, copies=0),
    "kill": GroupSetting(faults=GroupFaults(kill=1)),
    "wished-kill": GroupSetting(copies=0, wished=True, begun=True, faults=GroupFaults(kill=1)),
    "kill-skip": GroupSetting(copies=0, quarantine_after=1, faults=GroupFaults(kill=1)),
    "network": GroupSetting(copies=0, faults=GroupFaults(net=1)),
    "join-network": GroupSetting(start=1, fresh=1, copies=0, faults=GroupFaults(net=1)),
    "drain": GroupSetting(copies=0, faults=GroupFaults(drain=1)),
    "drain-begun": GroupSetting(copies=0, begun=True, faults=GroupFaults(drain=1)),
    "suspect": GroupSetting(copies=0, faults=GroupFaults(suspect=1)),
    "take-over": GroupSetting(copies=0, faults=GroupFaults(take_over=1)),
    "take-over-alone": GroupSetting(start=1, copies=0, faults=GroupFaults(take_over=1)),
    "streams": GroupSetting(copies=0, faults=GroupFaults(break_=1)),
    "join-kill": GroupSetting(start=1, fresh=1, copies=0, faults=GroupFaults(kill=1)),
    "shards": GroupSetting(shards=2),
    "shards-kill": GroupSetting(copies=0, shards=2, begun=True, faults=GroupFaults(kill=1)),
    "shards-wished": GroupSetting(copies=0, wished=True, shards=2, begun=True, faults=GroupFaults(kill=1)),
    "shards-full": GroupSetting(copies=0, wished=True, shards=2, begun=True, faults=GroupFaults(full=1)),
    "shards-network": GroupSetting(copies=0, wished=True, shards=2, begun=True, faults=GroupFaults(net=1)),
    "shards-drain": GroupSetting(start=3, batch=3, copies=0, shards=2, begun=True, faults=GroupFaults(drain=1)),
    "stop": GroupSetting(steps=3, stops_at=2, copies=0, faults=GroupFaults(kill=1)),
    "stop-join": GroupSetting(start=1, fresh=1, steps=3, stops_at=1, copies=0, faults=GroupFaults(net=1)),
    "stop-take-over": GroupSetting(steps=3, stops_at=1, copies=0, faults=GroupFaults(take_over=1, kill=1)),
    "stop-drain": GroupSetting(steps=3, stops_at=1, copies=0, faults=GroupFaults(drain=1)),
    "stop-shards": GroupSetting(copies=0, shards=2, begun=True, faults=GroupFaults(stop=1)),
    "stop-full": GroupSetting(copies=0, shards=2, begun=True, faults=GroupFaults(stop=1, full=1)),
    "stop-alone": GroupSetting(copies=1, faults=GroupFaults(stop=1)),
    "stop-alone-kill": GroupSetting(copies=0, faults=GroupFaults(stop=1, kill=1)),
    "hang": GroupSetting(copies=0, begun=True, faults=GroupFaults(hang=1)),
    "hang-join": GroupSetting(fresh=1, batch=3, copies=0, hangs_for_good=True, begun=True, faults=GroupFaults(hang=1)),
    "differ": GroupSetting(steps=3, compares=True, begun=True, faults=GroupFaults(differ=1)),
    "differ-shards": GroupSetting(
        steps=3, copies=0, wished=True, shards=2, compares=True, begun=True, faults=GroupFaults(differ=1)
    ),
    "differ-network": GroupSetting(
        steps=3, copies=0, wished=True, compares=True, begun=True, faults=GroupFaults(differ=1, net=1)
    ),
    "compare-kill": GroupSetting(
        copies=0, wished=True, shards=2, compares=True, begun=True, faults=GroupFaults(kill=1)
    ),
    "compare-drain": GroupSetting(copies=0, compares=True, faults=GroupFaults(drain=1)),
    "hook-take-over": GroupSetting(steps=1, copies=0, begun=True, has_hook=True, faults=GroupFaults(take_over=1)),
    "lost-store": GroupSetting(begun=True, faults=GroupFaults(lose=1)),
    "lost-store-join": GroupSetting(start=1, fresh=1, copies=0, faults=GroupFaults(lose=1)),
    "lost-store-kill": GroupSetting(copies=0, begun=True, faults=GroupFaults(lose=1, kill=1)),
    "lost-store-twice": GroupSetting(start=1, copies=0, has_head=True, begun=True, faults=GroupFaults(lose=2)),
    "take-over-kill": GroupSetting(copies=0, faults=GroupFaults(kill=1, take_over=1)),
}
