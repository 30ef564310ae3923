"""Connections of this process's generations: made in the background, aborted from any thread, closed late (79, 82)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final

from master.api.identities import Incarnation
from master.api.messages.generations import Generation
from trainer_sdk.collective import CollectiveAborted, CollectiveListener, HostCollective, Peer
from trainer_sdk.errors import CollectiveStalled
from trainer_sdk.group.core.member_state import rank_in

CONNECT_S: Final = 60.0  # for all members to connect; a joiner waits for the others to hear of the plan
IDLE_S: Final = 660.0
"""Longest time in which a collective moves no byte: above the master's fixed limits (`membership.LOADING_NS`).

The master ends such a wait earlier (rule 74), and an abort then shuts the sockets down.  This bound is for what it does
not see, as a network that is cut between two members alone, and for a job without a master.  A false one costs a step,
as any false loss does, and each one doubles the bound in this process: no step is too long for ever.  Steps of minutes
meet it: the master allows ten of the median, which is more where that is above a minute.
"""


class GroupCollectives:
    """The groups by their generation's number.  Methods may be called from any thread; none waits."""

    def __init__(self, listener: CollectiveListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._groups: dict[int, HostCollective] = {}
        self._wanted: dict[int, str] = {}  # keys of groups that are connected or connecting
        self._closing: list[threading.Thread] = []
        self._records: dict[int, Generation] = {}  # of `_groups`
        self.idle_s = IDLE_S  # of groups that are connected from now on

    def get(self, number: int) -> HostCollective | None:
        with self._lock:
            return self._groups.get(number)

    def connect(
        self,
        record: Generation,
        incarnation: Incarnation,
        *,
        connected: Callable[[int], object],
        failed: Callable[[int], object],
    ) -> None:
        """Connects in a thread of its own, which calls `connected` or `failed`, whatever happens in it."""
        key = f"{record.lineage}-{record.number}"
        with self._lock:
            self._wanted[record.number] = key

        def try_connect() -> None:
            with self._lock:
                if record.number not in self._wanted:
                    return  # left before this thread began: nothing would end the attempt
            group = self._listener.connect(
                key=key,
                rank=rank_in(record, incarnation),
                members=[Peer(str(member.incarnation), member.address) for member in record.members],
                budget_s=CONNECT_S,
                idle_s=self.idle_s,
            )
            with self._lock:
                is_wanted = record.number in self._wanted
                if is_wanted:
                    self._groups[record.number], self._records[record.number] = group, record
            if is_wanted:
                connected(record.number)
            else:
                group.abort("the generation was left")
                group.close()

        def run() -> None:
            try:
                try_connect()
            except CollectiveAborted:
                failed(record.number)
            except Exception as error:  # noqa: BLE001  a bug: else the other members would wait for this one
                text = f"{type(error).__name__}: {error}"
                sys.stderr.write(f"edl: generation {record.number} could not be connected: {text}\n")
                failed(record.number)

        threading.Thread(target=run, name=f"edl-group-{record.number}", daemon=True).start()

    def abort(self, number: int, reason: str) -> None:
        """Every operation of this generation, here and at its members, ends at once."""
        with self._lock:
            key = self._wanted.pop(number, None)
            group, record = self._groups.pop(number, None), self._records.pop(number, None)
        if key is not None:
            self._listener.abort(key, reason)
        if group is not None:
            group.abort(reason)
            self._close(group)
        if group is not None and record is not None and group.stalled is not None:
            self._tell(record, group.stalled)

    def close_group(self, number: int) -> None:
        with self._lock:
            self._wanted.pop(number, None)
            self._records.pop(number, None)
            group = self._groups.pop(number, None)
        if group is not None:
            self._close(group)

    def _tell(self, record: Generation, stalled: CollectiveStalled) -> None:
        """Whose user looks for the reason finds it here: the step comes again, and the master knows of no fault."""
        awaited = [record.members[rank] for rank in stalled.ranks]
        names = ", ".join(f"{one.name} at {one.address}" for one in awaited)
        sys.stderr.write(
            f"edl: generation {record.number}: no byte moved for {stalled.idle_s:g} s while this trainer waited for "
            f"{names}; its step is dropped and comes again. Does the network between the trainers work?\n"
        )
        self.idle_s = 2 * stalled.idle_s

    def close(self) -> None:
        """Leaves all groups in an orderly way, and listens no more."""
        for number in tuple(self._wanted):
            self.close_group(number)
        for thread in tuple(self._closing):
            thread.join()  # says goodbye for a few seconds, or is aborted: `HostCollective.close`
        self._listener.close()

    def _close(self, group: HostCollective) -> None:
        """In a thread: a peer that does not read is waited for, a few seconds."""
        self._closing = [thread for thread in self._closing if thread.is_alive()]
        thread = threading.Thread(target=group.close, name="edl-group-close", daemon=True)
        self._closing.append(thread)
        thread.start()
