"""Who makes way for a server that moves to a full node: surplus trainers, and only as a voluntary change takes them.

Each of their jobs keeps its window and its minimum, each trainer has run for its time, and sizes move by one: so what a
server's move takes is no more than fairness might take at this moment (A6).  Next: `moving`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from autoscaler.domain import Cause, JobName, JobState, Pod, Tier
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.windows import leaves_at, shrink_opens_at

MOST_DISPLACED: Final = 2
"""Trainers that leave one node at once."""


def make_way(draft: Draft, at: int, shape: int, count: int, *, beneficiary: str) -> bool:
    """Have few trainers leave the node so that so many pods of the shape fit; False, and nothing done, if many must.

    What is leaving the node already counts as gone.
    """
    asked = [count * amount for amount in draft.rooms.asked_amounts(shape)]
    room = draft.rooms.later[:, at].tolist()
    lacking = [max(0, amount - there) if amount else 0 for amount, there in zip(asked, room, strict=True)]
    taken: list[tuple[JobDraft, Pod]] = []
    for job, pod in sorted(displaceable(draft, at), key=lambda pair: (-draft.share(pair[0]), pair[0].job.name)):
        if not any(lacking):
            break
        amounts = draft.rooms.asked_amounts(draft.shapes.number(pod.shape))
        lacking = [max(0, lack - amount) for lack, amount in zip(lacking, amounts, strict=True)]
        taken.append((job, pod))
    if any(lacking) or len(taken) > MOST_DISPLACED:
        return False
    for job, pod in taken:
        draft.remove(job, [pod], Cause.DEFRAGMENTATION, beneficiary=beneficiary)
    return True


def displaceable(draft: Draft, at: int) -> Iterator[tuple[JobDraft, Pod]]:
    """Yield the surplus trainers on a node that may be taken voluntarily now."""
    name = draft.rooms.names[at]
    for owner, held in sorted(Counter(filter(None, draft.held_on.get(at, ()))).items()):
        job = draft.jobs[JobName(owner)]
        if not held or not may_give_one(draft, job):
            continue
        there = (pod for pod in job.trainers if pod.place == name and pod.tier is Tier.SURPLUS)
        for pod, _ in zip(sorted(there, key=lambda pod: -pod.ordinal), range(job.spare), strict=False):
            opens_at_s = leaves_at(draft.policy, job.job, pod)
            if draft.now_s >= opens_at_s:
                yield job, pod
            else:
                draft.wake_at_s.append(opens_at_s)


def may_give_one(draft: Draft, job: JobDraft) -> bool:
    """Whether the job is one that gives single trainers, and its window is open."""
    spec = job.job.trainer
    is_single = spec.step == 1 and spec.per_node == 1 and not spec.powers_of_two and not spec.pinned_replicas
    if not is_single or job.job.state is not JobState.ACTIVE or not job.spare or job.coming_trainers:
        return False
    opens_at_s = shrink_opens_at(draft, job.job)
    if draft.now_s < opens_at_s:
        draft.wake_at_s.append(opens_at_s)
    return draft.now_s >= opens_at_s
