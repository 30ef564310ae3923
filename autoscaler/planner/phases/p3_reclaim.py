"""P3: room for pods of others that rank above surplus and fit nowhere.

For each, the node where the fewest trainers must leave, then those of the largest share (`victims`).  Surplus only,
never below a minimum, never servers: moving state does not belong in the web's way.  A pod that did not use the rooms
made for it gets no third one (`kubernetes.md` 15).  Next: `gangs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import add

from autoscaler.domain import Cause, DemandState, Reclaim
from autoscaler.planner.draft_state import Want
from autoscaler.planner.phases.p1_external_pods import answer, urgency
from autoscaler.planner.placement.node_choice import emptiest_room
from autoscaler.planner.placement.victims import Harm, Victims, cheapest_victims
from autoscaler.planner.placement.waste import WEIGHED_NODES
from autoscaler.planner.sharing.step_down import last_step_of, share_below
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.shapes import copies_that_fit
from autoscaler.planner.working_copy.working_copy import Draft


def make_room(draft: Draft) -> None:
    """Settle every want that `others` left unserved, most urgent first."""
    wants = sorted(draft.unserved, key=urgency)
    waiting = Counter(want.shape for want in wants)
    for want in wants:
        serve(draft, want, alike=waiting[want.shape])
        waiting[want.shape] -= 1
    draft.unserved.clear()


def serve(draft: Draft, want: Want, *, alike: int) -> None:
    """Tell the cheapest surplus to leave for the want, or say why nobody does.

    `alike`: how many wants of this shape are left, this one included.
    """
    rooms, shape = draft.rooms, draft.shapes.number(want.shape)
    at = emptiest_room(draft, shape, now=False, is_there=want.is_there)
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
    avoid = rooms.mask(used) if refused else None
    victims = cheapest_victims(draft, shape, want.rank, avoid=avoid, harm=harm_of_shrink(draft, shape, alike))
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


def harm_of_shrink(draft: Draft, shape: int, alike: int) -> Callable[[Victims], Harm] | None:
    """Return what a choice costs beyond the trainers that leave; None on large clusters, where it is not weighed.

    A job that is poor already would get its step back from the richest one, so what that one will give counts.  And
    one trainer of 5 cores makes room for two web pods of 3 where a core is free already: what is left over on the node
    once the pod is there, with those like it, counts among choices of as many trainers.
    """
    rooms = draft.rooms
    if len(rooms) > WEIGHED_NODES:
        return None
    asked = rooms.asked_amounts(shape)
    richest: dict[int, JobDraft] = {}
    for job in draft.jobs.values():
        priority = job.job.priority
        if job.spare and (priority not in richest or share_below(draft, job) > share_below(draft, richest[priority])):
            richest[priority] = job

    def moved_back(job: JobDraft, count: int) -> int:
        rich = richest.get(job.job.priority)
        is_poor = rich is not None and draft.share(job, more=1 - count) < share_below(draft, rich)
        return last_step_of(rich) if rich is not None and is_poor else 0

    def harm(victims: Victims) -> Harm:
        room = rooms.later[:, victims.at].tolist()
        for pod in victims.pods:
            room = list(map(add, room, rooms.asked_amounts(draft.shapes.number(pod.shape))))
        count = min(alike, copies_that_fit(room, asked))
        left = zip(room, asked, rooms.whole[:, victims.at].tolist(), strict=True)
        crumbs = sum((offered - count * amount) / whole for offered, amount, whole in left if amount > 0)
        return sum(moved_back(job, len(pods)) for job, pods in victims.taken), crumbs

    return harm


def is_left_to_scheduler(draft: Draft, want: Want) -> bool:
    """Whether a scheduler must have its say first: no verdict yet, or it may free the room by itself."""
    if want.cause is Cause.ANNOUNCED_GROWTH:
        # Its pods stand milliseconds from now.  A scheduler that preempts chooses for them then, whoever left before.
        return draft.policy.reclaim is Reclaim.SCHEDULER
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
