"""P3: room for pods of others that rank above surplus and fit nowhere.

For each, the node where the fewest trainers must leave, then those of the largest share (`victims`).  Surplus only,
never below a minimum, never servers: moving state does not belong in the web's way.  A pod that did not use the rooms
made for it gets no third one (`kubernetes.md` 15).  Next: `gangs`.
"""

from __future__ import annotations

from autoscaler.domain import Cause, DemandState, Reclaim
from autoscaler.planner.draft import Draft
from autoscaler.planner.draft_state import Want
from autoscaler.planner.fit import emptiest_room
from autoscaler.planner.others import answer, urgency
from autoscaler.planner.victims import Victims, cheapest_victims


def make_room(draft: Draft) -> None:
    """Settle every want that `others` left unserved, most urgent first."""
    for want in sorted(draft.unserved, key=urgency):
        serve(draft, want)
    draft.unserved.clear()


def serve(draft: Draft, want: Want) -> None:
    """Tell the cheapest surplus to leave for the want, or say why nobody does."""
    rooms, shape = draft.rooms, draft.shapes.number(want.shape)
    at = emptiest_room(draft, shape, now=False)
    if at is not None:  # what leaves for a more urgent want is more than that one needs
        rooms.take(at, shape, now=False)
        answer(draft, want, DemandState.ROOM_LEAVING, rooms.names[at])
        return
    if is_left_to_scheduler(draft, want):
        answer(draft, want, DemandState.LEFT_TO_SCHEDULER)
        return
    used = frozenset(made.node for made in draft.view.history.rooms_made if made.pod == want.name)
    refused = any(refusal.pod == want.name for refusal in draft.view.history.refusals)
    if refused and len(used) >= draft.policy.rooms_per_pod:
        answer(draft, want, DemandState.ROOM_REFUSED)
        return
    victims = cheapest_victims(draft, shape, want.rank, avoid=rooms.mask(used) if refused else None)
    if victims is None:
        answer(draft, want, DemandState.NO_ROOM)
        return
    take(draft, want, victims)


def take(draft: Draft, want: Want, victims: Victims) -> None:
    """Shrink the victims' jobs and promise the room to the want."""
    for job, pods in victims.taken:
        draft.shrink(job, pods, want.cause, beneficiary=want.name)
    draft.rooms.take(victims.at, draft.shapes.number(want.shape), now=False)
    answer(draft, want, DemandState.SHRUNK_FOR, draft.rooms.names[victims.at], victims.pods)


def is_left_to_scheduler(draft: Draft, want: Want) -> bool:
    """Whether a scheduler must have its say first: no verdict yet, or it may free the room by itself."""
    pod = want.pod
    if pod is None or want.cause is not Cause.POD:
        return False
    if pod.unschedulable_since_s is None:
        return True
    if draft.policy.reclaim is Reclaim.PLANNER or not pod.can_preempt:
        return False
    due_s = pod.unschedulable_since_s + draft.policy.preemption_wait_s
    if draft.now_s < due_s:
        draft.wake_at_s.append(due_s)
    return draft.now_s < due_s
