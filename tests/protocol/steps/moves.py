"""Buckets that are wanted elsewhere, their copies on the way, and servers that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from master.api.messages.from_members import ServerLeaving
from master.job.domain.job_events import MessageReceived, MovesRequested, ServersRequested
from master.job.placement.owner_placement import Move as BucketMove
from master.job.state.bucket_table import owner_of
from master.job.state.protocol_state import RecoveryStage
from tests.protocol import servers
from tests.protocol.draft import Draft
from tests.protocol.steps.change import Change, Label
from tests.protocol.world import Cast, World
from trainer_sdk.pserver.core.server_events import WarmCopyRequested


def of_copies(cast: Cast, world: World) -> Iterator[Change]:
    """Copies come once, twice, late or never: the master has what is needed sent again."""
    for number in world.copies:
        copy = cast.shipments[number]
        ordinal = int(copy.head.target[1:].split(".")[0])
        process = cast.servers[world.servers[ordinal]].process
        if process.state.incarnation != copy.head.target:
            continue
        step = cast.copy_step(process, copy)
        if step.process != process or step.told or step.asked_full:
            kind = "HANDOVER" if copy.head.is_final else "WARM"
            label = Label("{} of {} v{} reaches s{}", (kind, copy.head.bucket, copy.head.version, ordinal))
            yield Change(label, lambda d, copy=copy: d.copy_arrives(copy))


def of_moves(cast: Cast, world: World) -> Iterator[Change]:
    leader = cast.masters[world.leader].state
    if not cast.setting.is_moving or leader.stage is not RecoveryStage.SERVING or leader.route is None:
        return
    is_time = cast.setting.moves_in in (None, leader.commit.phase)
    for b in range(len(leader.route.owner) if is_time else 0):
        owner = int(owner_of(leader.route, b).name[1:])
        for s in range(len(world.servers)):
            if s != owner:
                asked = MovesRequested(moves=(BucketMove(bucket=b, source=owner, target=s),), reason="asked")
                yield Change(
                    Label("bucket {} is WANTED on s{}", (b, s)), lambda d, asked=asked: d.to_leader(asked), "move"
                )
    for s, number in enumerate(world.servers):
        slot = cast.servers[number]
        if not slot.is_leaving and slot.link == leader.term:
            yield Change(Label("s{} has to LEAVE", (s,)), lambda d, s=s: _leave(d, s), "leave")
    for intent in leader.moves.intents:
        source, target = int(intent.source.name[1:]), int(intent.target.name[1:])
        order = WarmCopyRequested(
            lineage=intent.lineage,
            bucket=intent.bucket,
            version=intent.version,
            target=servers.place(target, intent.target.incarnation),
        )
        if cast.servers[world.servers[source]].process.state.incarnation == intent.source.incarnation:
            yield Change(
                Label("s{} sends {} AHEAD", (source, intent.bucket)),
                lambda d, s=source, order=order: d.server_takes(s, order),
                "warm",
            )


def _leave(draft: Draft, s: int) -> None:
    slot = replace(draft.server(s), is_leaving=True)
    draft.put_server(s, slot)
    said = MessageReceived(sender=draft.cast.server_key(slot, s), message=ServerLeaving())
    draft.to_master(slot.link, said)


def of_wishes(cast: Cast, world: World) -> Iterator[Change]:
    """The cluster side says what it wants until the master has it, and makes the processes that are wanted."""
    if not cast.setting.faults.wish:
        return
    scale = cast.masters[world.leader].state.scale
    for n in range(1, cast.setting.servers + 1):
        if n != world.wish:
            yield Change(Label("{} servers are WANTED", (n,)), lambda d, n=n: _wish(d, n), "wish")
    if world.wish not in (scale.newest, scale.target) or (scale.target != world.wish and not scale.waiting_requests):
        label = Label("the master is told again that {} servers are wanted", (world.wish,))
        yield Change(label, lambda d: _wish(d, d.wish))
    for s in range(world.wish):
        if not cast.servers[world.servers[s]].is_here:
            label = Label("a process for s{} is made", (s,))
            yield Change(label, lambda d, s=s: d.put_server(s, replace(d.server(s), is_here=True)))


def _wish(draft: Draft, count: int) -> None:
    draft.wish = count
    draft.to_leader(ServersRequested(request=0, count=count))
