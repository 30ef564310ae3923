"""What servers do: they connect, hear, write files, crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from master.api.messages.to_members import Activate, Cut, Forget, Freeze, Released
from master.job.domain.effects import CloseStream
from master.job.domain.job_events import StreamBroken
from master.job.state.protocol_state import CommitPhase
from tests.protocol import servers
from tests.protocol.draft import Draft
from tests.protocol.masters import MasterProcess
from tests.protocol.servers import ServerProcess
from tests.protocol.steps.change import Change, Label
from tests.protocol.world import NOBODY, Cast, ServerSlot, World
from trainer_sdk.pserver.core import event_table
from trainer_sdk.pserver.core.server_state import CutPhase


def of_servers(cast: Cast, world: World) -> Iterator[Change]:
    leader = cast.masters[world.leader]
    for s, number in enumerate(world.servers):
        slot, name = cast.servers[number], f"s{s}"
        state = slot.process.state
        if not slot.is_here:
            continue
        if slot.link != cast.term(world):
            yield Change(Label("{} connects", (name,)), lambda d, s=s: d.connect_server(s, d.term()))
        yield from _of_orders(s, slot)
        yield from _of_files(s, slot.process)
        if (due := event_table.next_deadline(state)) is not None:
            fault = None if is_over(leader, slot) else "deadline"
            yield Change(
                Label("{} at {}: {}", ("time is up", name, due[1])),
                lambda d, s=s, event=due[1]: d.server_takes(s, event),
                fault,
            )
        yield Change(Label("{} CRASHES", (name,)), lambda d, s=s: _crash_server(d, s), "server_crash")
        if slot.link != NOBODY:
            yield Change(Label("the stream of {} BREAKS", (name,)), lambda d, s=s: _break_server(d, s), "break_")


def _of_orders(s: int, slot: ServerSlot) -> Iterator[Change]:
    """What masters have said to it comes in order, but for what `overtake` and `late` allow."""
    name = f"s{s}"
    if slot.inbox:
        yield Change(Label("{} hears {}", (name, slot.inbox[0])), lambda d, s=s: _server_hears(d, s))
    for place, message in enumerate(slot.inbox[1:], 1):
        if isinstance(message, Freeze | Activate | Forget):
            label = Label("{} hears {} BEFORE what was said before", (name, message))
            yield Change(label, lambda d, s=s, place=place: _overtaken(d, s, place), "overtake")
    for place, message in enumerate(slot.late):
        label = Label("{} hears {} of a master BEFORE", (name, message))
        yield Change(label, lambda d, s=s, place=place: _hears_late(d, s, place), "late")


def _of_files(s: int, process: ServerProcess) -> Iterator[Change]:
    if process.file_to_write is not None:
        yield Change(Label("s{} writes its file", (s,)), lambda d: _file_written(d, s))
    if process.to_load is not None:
        yield Change(Label("s{} has read its files", (s,)), lambda d: _loaded(d, s))


def _server_hears(draft: Draft, s: int) -> None:
    slot = draft.server(s)
    message, *rest = slot.inbox
    if isinstance(message, CloseStream):
        _break_server(draft, s)
        return
    if isinstance(message, Released):
        _crash_server(draft, s)
        return
    draft.put_server(s, replace(slot, inbox=tuple(rest)))
    draft.server_takes(s, message)
    while (rest := draft.server(s).inbox) and not isinstance(rest[0], draft.cast.takes_time):
        draft.put_server(s, replace(draft.server(s), inbox=rest[1:]))
        draft.server_takes(s, rest[0])


def _overtaken(draft: Draft, s: int, place: int) -> None:
    slot = draft.server(s)
    draft.put_server(s, replace(slot, inbox=(*slot.inbox[:place], *slot.inbox[place + 1 :])))
    draft.server_takes(s, slot.inbox[place])


def _hears_late(draft: Draft, s: int, place: int) -> None:
    slot = draft.server(s)
    draft.put_server(s, replace(slot, late=(*slot.late[:place], *slot.late[place + 1 :])))
    draft.server_takes(s, slot.late[place])


def _file_written(draft: Draft, s: int) -> None:
    draft.server_stepped(s, servers.file_written(draft.server(s).process, draft.cast.setting.positions))


def _loaded(draft: Draft, s: int) -> None:
    draft.server_stepped(s, servers.loaded(draft.server(s).process, draft.cast.setting.positions))


def _crash_server(draft: Draft, s: int) -> None:
    """Pushes that nobody will send again were on connections that are gone."""
    slot = draft.server(s)
    if slot.link != NOBODY:
        draft.to_master(slot.link, StreamBroken(member=draft.cast.server_key(slot, s)))
    births = int(slot.process.state.incarnation.rsplit(".", 1)[1]) + 1
    is_here = not draft.cast.setting.faults.wish  # or one comes at once
    draft.put_server(s, ServerSlot(process=draft.cast.new_server(s, births), is_here=is_here))
    parcels = {number: draft.cast.parcels[number] for number in draft.net}
    draft.net = {n for n, parcel in parcels.items() if parcel.server != s or parcel.sender is not None}


def _break_server(draft: Draft, s: int) -> None:
    slot = draft.server(s)
    draft.to_master(slot.link, StreamBroken(member=draft.cast.server_key(slot, s)))
    draft.put_server(s, replace(slot, link=NOBODY, inbox=()))


def is_over(leader: MasterProcess, slot: ServerSlot) -> bool:
    """The cut that this server keeps will not go on: the master has given it up, or CUT was lost."""
    known = slot.process.state.cut
    assert known is not None
    if leader.state.commit.cut != known.cut:
        return True
    is_cut = leader.state.commit.phase is CommitPhase.WRITING
    return is_cut and known.phase is CutPhase.HELD and not any(isinstance(m, Cut) for m in slot.inbox)
