"""What can never matter again: it is dropped, so that states that only differ in it become one.

A push that can never have an effect, a manifest that can never be adopted, a deposed master that nobody hears and that
writes nothing any more, a copy that nobody will take, a cut that nobody can name.
"""

from __future__ import annotations

from dataclasses import replace

from tests.protocol.draft import Draft
from tests.protocol.settings import Setting
from tests.protocol.world import Parcel, Relay, ServerSlot
from trainer_sdk.pserver.core.messages import CopyHead, PushTarget
from trainer_sdk.pserver.core.server_state import CutPhase, ServerState


def drop_dead(draft: Draft) -> None:
    """Whatever has no effect any more, whenever it arrives, is gone: fewer states, the same futures."""
    _drop_masters(draft)
    _drop_manifests(draft)
    _drop_parcels(draft)
    _drop_copies(draft)
    _drop_relays(draft)
    _forget_cuts(draft)


def _drop_masters(draft: Draft) -> None:
    """A deposed master that no member hears and that has no manifest to write."""
    if not draft.zombies:
        return
    heard = {draft.server(s).link for s in range(len(draft.servers))}
    heard |= {draft.trainer(t).link for t in range(len(draft.trainers))}
    draft.zombies = [
        z for z in draft.zombies if draft.cast.masters[z].manifests or draft.cast.masters[z].state.term in heard
    ]


def _drop_manifests(draft: Draft) -> None:
    """Orphans for ever: of another parent than head, or of another lineage (rule 24)."""
    durable = draft.durable().durable
    head = durable.head.id if durable.head else None
    number = durable.lineage.number if durable.lineage else None
    storage = draft.cast.storages[draft.storage]
    kept = (
        storage
        if draft.cast.setting.keeps_orphans
        else tuple(m for m in storage if m.parent == head and m.lineage == number)
    )
    if kept != storage:
        draft.storage = draft.cast.storages.number(kept)
    if durable.head is not None and durable.head.parent is not None:  # nobody asks head for its parent
        etcd = draft.durable()
        durable = replace(durable, head=replace(durable.head, parent=None))
        draft.etcd = draft.cast.etcds.number(replace(etcd, durable=durable))


def _drop_parcels(draft: Draft) -> None:
    for number in tuple(draft.net):
        parcel = draft.cast.parcels[number]
        if parcel.sender is not None and not draft.cast.is_awaited(draft.trainers[parcel.sender], number):
            draft.net.discard(number)
            parcel = replace(parcel, sender=None)
            draft.net.add(draft.cast.parcels.number(parcel))
        if parcel.sender is None and _is_dead(draft.cast.setting, draft.server(parcel.server), parcel):
            draft.net.discard(draft.cast.parcels.number(parcel))


def _is_dead(setting: Setting, slot: ServerSlot, parcel: Parcel) -> bool:
    """Whenever it arrives it will be refused: the lineage has gone on, or some of it is marked already."""
    if not setting.is_pruned:
        return False
    state, push = slot.process.state, parcel.push
    if max(state.lineage, state.newest_restore) > push.lineage:
        return True
    if state.lineage == push.lineage and all(is_past(state, target) for target in push.targets):
        return True
    touched = [g for g in state.groups if any(g.buckets & target.buckets for target in push.targets)]
    return (
        state.lineage == push.lineage
        and bool(touched)
        and all(push.positions & (g.applied | g.skipped) for g in touched)
    )


def _drop_copies(draft: Draft) -> None:
    """For a process that is over, or refused whenever it arrives."""
    for number in tuple(draft.copies):
        head = draft.cast.shipments[number].head
        process = draft.server(int(head.target[1:].split(".")[0])).process
        step = draft.cast.copy_step(process, draft.cast.shipments[number])
        is_early = max(process.state.lineage, process.state.newest_restore) < head.lineage
        is_awaited = bool(step.told) and _is_to_come(draft, head)
        is_taken = step.process != process or step.asked_full is not None or is_awaited
        is_of_use = not draft.cast.setting.is_pruned or is_early or is_taken
        if process.state.incarnation != head.target or not is_of_use:
            draft.copies.discard(number)


def _drop_relays(draft: Draft) -> None:
    """For a backup that is over or refuses it whenever it comes; an answer to a push that nobody sends any more."""
    for number in tuple(draft.relays):
        relay = draft.cast.relays[number]
        state = draft.server(relay.one.to.ordinal).process.state
        is_over = (
            state.incarnation != relay.one.to.incarnation or max(state.lineage, state.newest_restore) > relay.lineage
        )
        is_refused = state.lineage == relay.lineage and all(is_past(state, target) for target in relay.one.targets)
        is_to_come = not (relay.said or is_over or is_refused)
        is_answer_of_use = (bool(relay.said) or is_to_come) and _is_waited_for(draft, relay)
        if not is_answer_of_use and not (is_to_come and not _is_marked(state, relay)):
            draft.relays.discard(number)


def _is_waited_for(draft: Draft, relay: Relay) -> bool:
    """The push that it was made of is still coming to that owner."""
    parcels = (draft.cast.parcels[number] for number in draft.net)
    return any(
        (p.push.lineage, p.push.positions) == (relay.lineage, relay.positions)
        and draft.server(p.server).process.state.incarnation == relay.owner
        for p in parcels
    )


def _is_marked(state: ServerState, relay: Relay) -> bool:
    touched = [g for g in state.groups if any(g.buckets & target.buckets for target in relay.one.targets)]
    return bool(touched) and all(relay.positions & (g.applied | g.skipped) for g in touched)


def _is_to_come(draft: Draft, head: CopyHead) -> bool:
    """Its INSTALLED may still be of use."""
    ends = ((i.bucket, i.version + 1, i.target.incarnation) for i in draft.durable().durable.intents)
    return (head.bucket, head.version, head.target) in ends


def _forget_cuts(draft: Draft) -> None:
    """A cut that is over is remembered to refuse it again; when nobody can name it any more, it is forgotten."""
    if draft.zombies:
        return
    current = draft.cast.masters[draft.leader].state.commit.cut
    for server in range(len(draft.servers)):
        slot = draft.server(server)
        known = slot.process.state.cut
        if known is None or known.phase not in (CutPhase.GONE, CutPhase.WRITTEN) or known.cut == current:
            continue
        if any(
            getattr(message, "cut", None) is not None and message.cut <= known.cut
            for message in (*slot.inbox, *slot.late)
        ):
            continue
        state = replace(slot.process.state, cut=None)
        draft.put_server(server, replace(slot, process=replace(slot.process, state=state)))


def is_past(state: ServerState, target: PushTarget) -> bool:
    """No bucket of it is live here at that version, nor can ever be again."""
    live = {bucket for group in state.groups if group.version == target.version for bucket in group.buckets}
    return all(b not in live and state.moves.floor(b) > target.version for b in target.buckets)
