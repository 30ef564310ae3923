"""Fault injection into etcd: one member is killed and restarted on its data, or all are stopped for a while."""

from __future__ import annotations

import asyncio
import os
import random
import signal

from autoscaler.etcd_server.etcd_members import EtcdCluster, EtcdMember

DOWN_S = (0.1, 1.5)


def pause_member(member: EtcdMember) -> None:
    """SIGSTOP: connections stay, nothing answers."""
    os.kill(member.pid, signal.SIGSTOP)


def resume_member(member: EtcdMember) -> None:
    """SIGCONT, after `pause_member`."""
    os.kill(member.pid, signal.SIGCONT)


class EtcdFaultInjector:
    """Injects faults into the members of one etcd, each into members that no other fault holds.

    Both methods return a description of the target, empty if no member was free.
    """

    def __init__(self, etcd: EtcdCluster, rng: random.Random) -> None:
        self._members = etcd.members
        self._rng = rng
        self._resting: set[str] = set()  # being restarted, or paused

    async def kill(self) -> str:
        """Kills a member.  Two may be down at once for a moment: then etcd commits nothing."""
        standing = [member for member in self._members if member.name not in self._resting]
        if not standing:
            return ""
        member = self._rng.choice(standing)
        pid = member.pid
        self._resting.add(member.name)
        await member.kill()
        await asyncio.sleep(self._rng.uniform(*DOWN_S))
        await member.start()
        await member.wait_ready()
        self._resting.discard(member.name)
        return f"{member.name} pid {pid}"

    async def stop(self, for_s: float) -> str:
        """Stops all free members: none answers, connections stay."""
        members = [member for member in self._members if member.name not in self._resting]
        if not members:
            return ""
        for member in members:
            self._resting.add(member.name)
            pause_member(member)
        try:
            await asyncio.sleep(for_s)
        finally:
            for member in members:
                resume_member(member)
                self._resting.discard(member.name)
        return f"{len(members)} members for {for_s:.1f} s"
