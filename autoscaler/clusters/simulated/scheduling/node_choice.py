"""Node choice of the simulated scheduler: the node for a pod, or none.

It filters the nodes, counts capacity of pods nominated with equal or higher priority as taken, prefers the pod's own
nominated node, else takes the best score; the profile breaks ties.  Sources: schedule_one.go of pkg/scheduler
(findNodesThatFitPod, numFeasibleNodesToFind, selectHost).  Who leaves when nothing fits: `preemption`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autoscaler.clusters.simulated.scheduling.node_scoring import NodeIndices, ShapeScores, accepts, spread_score
from autoscaler.clusters.simulated.scheduling.scheduler_profile import SchedulerProfile, TieBreaking
from autoscaler.clusters.simulated.world.node_table import NodeTable
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import NodeName

LEAST_CANDIDATES = 100  # minFeasibleNodesToFind
LEAST_PERCENT = 5  # minFeasibleNodesPercentageToFind


class NodeChooser:
    """Chooses nodes.  `chance` yields numbers in [0, 1), drawn only for ties."""

    def __init__(self, table: NodeTable, profile: SchedulerProfile, chance: Callable[[], float]) -> None:
        self._table = table
        self._profile = profile
        self._chance = chance
        self._by_kind: dict[int, ShapeScores] = {}
        self._start = 0  # where the next search begins
        self._turn = 0  # of round robin
        names = [slot.node.name for slot in table.slots]
        self._by_name_descending = np.argsort(np.argsort(np.array(names))[::-1]) if names else np.zeros(0, np.intp)

    def node_for(self, pod: SimPod) -> NodeName | None:
        """Return the best node that fits the pod now; None if none does."""
        shape_scores = self._shape_scores(pod)
        if pod.nominated_node is not None and self._fits_beside_nominated(pod, pod.nominated_node):
            return pod.nominated_node
        candidates = self._candidates(shape_scores, pod)
        if not len(candidates):
            return None
        scores = shape_scores.scores[candidates]
        if pod.spread_group is not None:
            counts = self._table.groups[pod.spread_group][candidates]
            scores = scores + self._profile.spreading_weight * spread_score(self._profile, counts)
        best = candidates[scores == scores.max()]
        return self._table.slots[self._break_tie(best)].node.name

    def _shape_scores(self, pod: SimPod) -> ShapeScores:
        shape_scores = self._by_kind.get(pod.kind)
        if shape_scores is None:
            shape_scores = self._by_kind[pod.kind] = ShapeScores(self._table, self._profile, pod.shape, pod.amounts)
        shape_scores.refresh()
        return shape_scores

    def _candidates(self, shape_scores: ShapeScores, pod: SimPod) -> NodeIndices:
        """Return the nodes to score, in the order of the search."""
        feasible = shape_scores.fits.nonzero()[0]
        blocked = [
            self._table.index[name]
            for name in self._table.nominated_nodes
            if not self._fits_beside_nominated(pod, name)
        ]
        if blocked:
            feasible = feasible[~np.isin(feasible, blocked)]
        count = len(self._table.slots)
        wanted = sample_size(count) if self._profile.samples_nodes else count
        if len(feasible) <= wanted:
            return feasible
        turn = int(feasible.searchsorted(self._start))
        found = np.concatenate((feasible[turn:], feasible[:turn]))[:wanted]
        self._start = (int(found[-1]) + 1) % count
        return found

    def _fits_beside_nominated(self, pod: SimPod, name: NodeName) -> bool:
        slot = self._table.slot(name)
        coming = slot.nominated_amounts(pod.priority, but=pod.name)
        return accepts(slot, pod.shape) and slot.fits(pod.amounts, besides=coming)

    def _break_tie(self, best: NodeIndices) -> int:
        if len(best) == 1:
            return int(best[0])
        if self._profile.ties is TieBreaking.BY_CHANCE:
            return int(best[int(self._chance() * len(best))])
        self._turn += 1
        in_order = best[self._by_name_descending[best].argsort()]
        return int(in_order[(self._turn - 1) % len(best)])


def sample_size(count: int) -> int:
    """Return how many feasible nodes the search stops at."""
    if count < LEAST_CANDIDATES:
        return count
    percent = max(LEAST_PERCENT, 50 - count // 125)
    return max(LEAST_CANDIDATES, count * percent // 100)
