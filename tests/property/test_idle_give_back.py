"""No GPU is given away while its pod computes, and data in doubt moves nobody (promise A12)."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain import Pod, PodPhase, Role, Tier
from autoscaler.domain.gpu_reports import IDLE_VERDICTS, KEPT_S, NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.jobs.progress import JobProgress, TrainerEntry
from autoscaler.jobs.trainer_ledger import LONGEST_GAP_S, Device, LedgerHistory, judge_all, observe_ledger
from autoscaler.operator.idle.gpu_use import Consent, idle_pods_of
from master.api.master_status import JobPhase
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import node, shape

WINDOW_S = 300.0
LOW_S = 300.0  # an agent's window

answers = st.lists(
    st.tuples(
        st.sampled_from([0.5, 2.0, 10.0, LONGEST_GAP_S, 60.0, 400.0]),  # since the answer before
        st.sampled_from([JobPhase.TRAINING] * 5 + [JobPhase.COMMITTING, JobPhase.RESTORING]),
        st.integers(0, 3),  # batches since then
        st.sampled_from(["batch", "waits", "own code", "away"]),
        st.sampled_from(Device),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(answers)
def test_no_trainer_gives_that_completed_a_batch_within_the_window(story):
    """Whatever a master answers, and however seldom."""
    history, now_s, steps, worked_at_s, followed_s = LedgerHistory(), 0.0, 2, 0.0, 0.0
    for gap_s, phase, batches, place, device in story:
        now_s += gap_s
        steps += 2 * batches
        worked_at_s = now_s if batches else worked_at_s
        followed_s = 0.0 if batches or gap_s > LONGEST_GAP_S else followed_s + gap_s
        entry = TrainerEntry(
            name="t",
            steps=steps,
            is_connected=place != "away",
            is_computing=place == "batch",
            is_waiting=place == "waits",
        )
        progress = JobProgress(phase=phase, ledger=(entry,))
        history = observe_ledger(history, progress, now_s, is_group=False, window_s=WINDOW_S)
        for one in judge_all(history, window_s=WINDOW_S, devices={"t": device}):
            if one.gives or one.is_replaceable:
                assert now_s - worked_at_s >= WINDOW_S
                assert followed_s >= WINDOW_S  # without a gap in which it may have worked
                assert phase is JobPhase.TRAINING
                assert place != "away"
                assert device is not Device.BUSY
                assert place != "own code" or device is Device.LOW
                assert place != "batch" or device in {Device.LOW, Device.NONE}


class AgentOfNode:
    """A node whose pods compute and rest at random, and its agent, whose reports get lost, late or wrong."""

    def __init__(self, seed, *, pods=4, per_pod=2):
        self.random = random.Random(seed)
        self.now_s, self.per_pod = 1_000_000.0, per_pod
        self.names = [f"nb/{number}" for number in range(pods)]
        self.works_until = dict.fromkeys(self.names, 0.0)
        self.rests_until = dict.fromkeys(self.names, 0.0)
        self.worked_at_s = dict.fromkeys(self.names, self.now_s)
        self.reports = NO_REPORTS
        self.doubt = ""

    def works(self, name):
        return self.works_until[name] > self.now_s

    def step(self, seconds):
        self.now_s += seconds
        for name in self.names:
            if self.works(name):
                self.worked_at_s[name] = self.now_s
            elif self.rests_until[name] <= self.now_s:
                self.works_until[name] = self.now_s + self.random.uniform(60.0, 3_600.0)
                self.rests_until[name] = self.works_until[name] + self.random.uniform(60.0, 36_000.0)
                self.worked_at_s[name] = self.now_s

    def report(self):
        """What the agent says now, spoilt or not; `doubt` is how, as long as this report stands."""
        self.doubt = self.random.choice(["", "", "", "lost", "stale", "ahead", "short", "contradicts", "unknown"])
        if self.doubt == "lost":
            self.reports = self.reports.changed(gone=["n"])
            return
        at_s = self.now_s + {"stale": -KEPT_S - 1.0, "ahead": 4_000.0}.get(self.doubt, 0.0)
        gpus = []
        for name in self.names:
            for number in range(self.per_pod - (self.doubt == "short")):
                low_s = self.now_s - self.worked_at_s[name]
                said = GpuVerdict.HELD if low_s >= LOW_S else GpuVerdict.ACTIVE
                if self.doubt == "unknown":
                    said = GpuVerdict.UNKNOWN
                if self.doubt == "contradicts" and number == 0:
                    said = GpuVerdict.ACTIVE
                since_s = min(at_s, self.worked_at_s[name]) if said in IDLE_VERDICTS else None
                gpus.append(
                    GpuReport(uuid=f"{name}-{number}", model="m", verdict=said, low_since_s=since_s, pods=(name,))
                )
        self.reports = self.reports.changed([NodeGpuReport(node="n", gpus=tuple(gpus), reported_at_s=at_s)])

    def view(self):
        pods = [
            Pod(
                name=name,
                role=Role.EXTERNAL,
                tier=Tier.EXTERNAL,
                shape=shape(100, gpu=self.per_pod),
                phase=PodPhase.READY,
                node="n",
                created_at_s=0.0,
            )
            for name in self.names
        ]
        return MemoryCluster([node("n", 8_000, gpu=8)], pods=pods, now_s=self.now_s).view()


def play(seed, *, gpu_hours):
    """GPU-hours of one node: how many pods were idle in clear data, in doubtful data, and while they computed."""
    agent, clear, doubtful, wrong = AgentOfNode(seed), 0, 0, 0
    view = agent.view()
    consent = Consent(after_s=1_800.0)
    for _ in range(int(gpu_hours / 8 * 6)):
        agent.step(600.0)
        agent.report()
        found = idle_pods_of(view.pods, GpuUses(agent.reports), agent.now_s, offset_s=0.0, consent_of=lambda _: consent)
        clear += 0 if agent.doubt else len(found)
        doubtful += len(found) if agent.doubt else 0
        wrong += sum(agent.works(one.pod) or agent.now_s - agent.worked_at_s[one.pod] < LOW_S for one in found)
        assert all(one.since_s >= agent.worked_at_s[one.pod] - 1e-6 for one in found)
    return clear, doubtful, wrong


def test_data_in_doubt_make_nobody_idle_in_four_thousand_gpu_hours():
    """0 pods from missing, stale, contradicting or unknown data; clear data find some."""
    clear, doubtful, wrong = play(1, gpu_hours=4_000)
    assert clear > 100
    assert (doubtful, wrong) == (0, 0)


def test_a_pod_that_asks_for_more_gpus_than_are_reported_is_not_idle():
    """A lost GPU may be the one that computes."""
    agent = AgentOfNode(2)
    agent.step(10.0)
    agent.now_s += 7_200.0
    while agent.doubt or not agent.reports.by_node:
        agent.report()
    view = agent.view()
    larger = view.evolve(pods=[replace(pod, shape=shape(100, gpu=3)) for pod in view.pods])
    found = [
        idle_pods_of(seen.pods, GpuUses(agent.reports), agent.now_s, offset_s=0.0, consent_of=lambda _: Consent())
        for seen in (view, larger)
    ]
    assert found[0]
    assert not found[1]


if __name__ == "__main__":  # python -m tests.property.test_idle_give_back: a million GPU-hours
    totals = [play(seed, gpu_hours=100_000) for seed in range(10)]
    print(
        "idle in clear data, in doubtful data, while computing:", [sum(column) for column in zip(*totals, strict=True)]
    )
