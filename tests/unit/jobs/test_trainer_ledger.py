"""Who does no work, by the ledger: one table of trainers that stand still, and what each is.  ADR 0287, promise A12."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from autoscaler.jobs.idle_report import idle_events, idle_report
from autoscaler.jobs.progress import JobProgress, TrainerEntry
from autoscaler.jobs.trainer_ledger import (
    COMPILING_S,
    HUNG_AFTER_S,
    HUNG_BATCHES,
    LONGEST_GAP_S,
    OWN_CODE_S,
    Device,
    LedgerHistory,
    WorkState,
    judge_all,
    observe_ledger,
)
from master.api.master_status import JobPhase

WINDOW_S = 300.0
POLL_S = 2.0
BATCH_S = 1.0


def entry(name, steps, **more):
    return TrainerEntry(**{"name": name, "steps": steps, "is_computing": True} | more)


class Ledger:
    """A job whose trainers `t0` and `t1` have trained for a while; then `t1` does what the test says."""

    def __init__(self, *, is_group=False):
        self.is_group, self.now_s, self.steps = is_group, 0.0, 0
        self.history = LedgerHistory()
        for _ in range(20):
            self.poll()

    def working(self, name):
        return entry(name, self.steps, phase="reduce" if self.is_group else "")

    def poll(self, *, gap_s=POLL_S, phase=JobPhase.TRAINING, problem="", still=None, generation=1):
        """Another answer: `t0` works on, and `t1` too unless it is `still`."""
        self.now_s += gap_s
        self.steps += int((1 if self.is_group else 2) * gap_s / BATCH_S)
        ledger = (self.working("t0"), self.working("t1") if still is None else still)
        progress = JobProgress(phase=phase, problem=problem, ledger=ledger, generation=generation)
        self.history = observe_ledger(self.history, progress, self.now_s, is_group=self.is_group, window_s=WINDOW_S)

    def stand(self, seconds, *, device=Device.UNKNOWN, window_s=WINDOW_S, **more):
        """`t1` stands still for so long: its verdict or None, and after how long it was first told of."""
        at_s, told_s = self.now_s, None
        still = entry("t1", self.history.trainers["t1"].steps, **more.pop("still", {}))
        while self.now_s < at_s + seconds:
            self.poll(still=still, **more)
            told = judge_all(self.history, window_s=window_s, devices={"t1": device})
            told_s = self.now_s - at_s if told and told_s is None else told_s
        assert not told or [one.name for one in told] == ["t1"]
        return (told[0] if told else None), told_s


class LoneTrainer:
    """A group of one, which works and evaluates by turns."""

    def __init__(self):
        self.now_s, self.steps, self.history = 0.0, 0, LedgerHistory()

    def work(self, seconds):
        for _ in range(int(seconds / POLL_S)):
            self.steps += 2
            self._poll("compute")

    def stand(self, seconds, *, device=Device.NONE, window_s=WINDOW_S):
        """It is in its script's own code for so long: its verdict or None, and after how long it was first told of."""
        at_s, told_s, told = self.now_s, None, ()
        while self.now_s < at_s + seconds:
            self._poll("script")
            told = judge_all(self.history, window_s=window_s, devices={"t0": device})
            told_s = self.now_s - at_s if told and told_s is None else told_s
        return (told[0] if told else None), told_s

    def _poll(self, phase):
        self.now_s += POLL_S
        ledger = (entry("t0", self.steps, phase=phase, is_computing=False),)
        progress = JobProgress(phase=JobPhase.TRAINING, ledger=ledger, generation=1)
        self.history = observe_ledger(self.history, progress, self.now_s, is_group=True, window_s=WINDOW_S)


@pytest.mark.parametrize("device", [Device.NONE, Device.UNKNOWN])
@pytest.mark.parametrize("window_s", [0.0, WINDOW_S])
def test_only_trainer_that_stays_in_its_scripts_own_code_is_told_of_and_kept(device, window_s):
    """Nobody else would tell of it; what it has trained since the last checkpoint is nowhere else (ADR 0271)."""
    alone = LoneTrainer()
    alone.work(60)
    told, after_s = alone.stand(1000, device=device, window_s=window_s)
    assert OWN_CODE_S <= after_s <= OWN_CODE_S + 2 * POLL_S
    assert (told.state, told.gives, told.is_replaceable) == (WorkState.HUNG, False, False)
    ((reason, message),) = idle_events((), (told,), format_since=str)
    assert reason == "TrainerHangs"
    assert message.startswith("t0 is the only trainer, and has been in its script's own code since ")
    alone.work(10)
    assert judge_all(alone.history, window_s=window_s, devices={"t0": device}) == ()


def test_only_trainer_whose_evaluations_take_long_is_told_of_once():
    """Twice as long as before is no usual evaluation; a device that computes says that it is one."""
    alone = LoneTrainer()
    alone.work(60)
    assert alone.stand(200)[1] is not None
    for _ in range(3):
        alone.work(60)
        assert alone.stand(300)[1] is None
    alone.work(60)
    assert alone.stand(2000, device=Device.BUSY)[1] is None


OUT_OF_BATCH = {"is_computing": False}
WAITING = {"is_computing": False, "is_waiting": True}

CASES = [
    # what t1 does            for s  device          -> state, gives, is replaceable
    ({}, 6.0, Device.UNKNOWN, None),
    ({}, 20.0, Device.UNKNOWN, ("hung", False, False)),
    ({}, 20.0, Device.BUSY, ("hung", False, False)),  # a latched counter: told, and left to people
    ({}, 400.0, Device.UNKNOWN, ("hung", False, False)),  # a batch that is compiled anew, and no agent
    ({}, 400.0, Device.NONE, ("hung", True, False)),
    ({}, 400.0, Device.BUSY, ("hung", False, False)),
    ({}, 400.0, Device.LOW, ("hung", True, True)),
    (WAITING, 250.0, Device.LOW, None),
    (WAITING, 400.0, Device.UNKNOWN, ("idle", True, False)),
    (WAITING, 400.0, Device.LOW, ("idle", True, False)),
    (WAITING, 400.0, Device.NONE, ("idle", True, False)),
    (WAITING, 400.0, Device.BUSY, None),
    (OUT_OF_BATCH, 4000.0, Device.UNKNOWN, None),  # it may evaluate
    (OUT_OF_BATCH, 4000.0, Device.NONE, None),
    (OUT_OF_BATCH, 4000.0, Device.BUSY, None),
    (OUT_OF_BATCH, 400.0, Device.LOW, ("idle", True, False)),
    ({"is_connected": False}, 4000.0, Device.LOW, None),  # its master does not hear of it
]


@pytest.mark.parametrize(("still", "seconds", "device", "expected"), CASES)
def test_a_trainer_that_stands_still_is_what_the_table_says(still, seconds, device, expected):
    """Idle and hung are told apart, and doubt is work."""
    verdict, _ = Ledger().stand(seconds, still=still, device=device)
    assert (verdict and (verdict.state, verdict.gives, verdict.is_replaceable)) == expected


@pytest.mark.parametrize("phase", [phase for phase in JobPhase if phase is not JobPhase.TRAINING])
def test_no_trainer_is_idle_or_hung_while_its_job_does_something_else(phase):
    """A checkpoint, a restore, a start or an end explains a ledger that stands still."""
    assert Ledger().stand(4000.0, phase=phase, device=Device.LOW)[0] is None


def test_a_hung_trainer_is_told_of_within_three_batches_and_ten_seconds():
    """The goal of the promise, with the poll's delay in it."""
    _, told_s = Ledger().stand(60.0)
    assert HUNG_BATCHES * BATCH_S + HUNG_AFTER_S <= told_s <= HUNG_BATCHES * BATCH_S + 10.0


def test_a_trainer_that_may_compile_has_the_time_that_its_master_gives_it():
    """A batch of a new size is no usual one (ADR 0257); after two minutes it is told of as any."""
    ledger = Ledger(is_group=True)
    assert ledger.stand(COMPILING_S - POLL_S, still={"phase": "warm_up"})[0] is None
    assert ledger.stand(2 * POLL_S, still={"phase": "warm_up"})[0].state is WorkState.HUNG


def test_the_clock_stands_during_checkpoints_and_starts_anew_with_a_batch():
    """Time that a commit takes counts for nothing; one batch makes a trainer a working one."""
    ledger = Ledger()
    assert ledger.stand(250.0, still=WAITING)[0] is None
    assert ledger.stand(400.0, still=WAITING, phase=JobPhase.COMMITTING)[0] is None
    assert ledger.stand(100.0, still=WAITING)[0].state is WorkState.IDLE
    ledger.poll()
    assert ledger.stand(250.0, still=WAITING)[0] is None


@pytest.mark.parametrize("is_group", [False, True])
def test_a_commit_leaves_the_verdict_on_an_idle_trainer(is_group):
    """Each checkpoint would otherwise end it, tell of it again, and let the job grow meanwhile."""
    ledger = Ledger(is_group=is_group)
    still = {"phase": "load"} if is_group else WAITING
    before, _ = ledger.stand(400.0, still=still)
    during, told_s = ledger.stand(POLL_S, still=still, phase=JobPhase.COMMITTING)
    assert (during, told_s) == (before, POLL_S)
    assert (during.state, during.gives) == (WorkState.IDLE, True)
    assert ledger.stand(POLL_S, still={**still, "is_connected": False}, phase=JobPhase.COMMITTING)[0] is None
    assert ledger.stand(POLL_S, still=still, phase=JobPhase.RESTORING)[0] is None


def test_a_master_that_is_not_heard_of_makes_nobody_idle():
    """Answers that come too seldom prove nothing (promise A12: missing data is work)."""
    assert Ledger().stand(8000.0, still=WAITING, gap_s=LONGEST_GAP_S + 1, device=Device.LOW)[0] is None


def test_a_first_batch_may_take_as_long_as_it_likes():
    """A trainer that has completed no batch yet compiles, or loads its data."""
    history, now_s = LedgerHistory(), 0.0
    for _ in range(1000):
        now_s += POLL_S
        progress = JobProgress(phase=JobPhase.TRAINING, ledger=(entry("t0", 1),))
        history = observe_ledger(history, progress, now_s, is_group=False, window_s=WINDOW_S)
        assert not judge_all(history, window_s=WINDOW_S, devices={"t0": Device.LOW})


def test_a_trainer_with_batches_longer_than_a_poll_has_worked_after_its_first():
    """A batch counts as it is given and as it is done, and here each of the two comes with an answer of its own."""
    history, now_s = LedgerHistory(), 0.0
    for steps in (0, 0, 1, 1, 1, 2, *[2] * int(400.0 / POLL_S)):
        now_s += POLL_S
        progress = JobProgress(phase=JobPhase.TRAINING, ledger=(entry("t0", steps, **WAITING),))
        history = observe_ledger(history, progress, now_s, is_group=False, window_s=WINDOW_S)
    [told] = judge_all(history, window_s=WINDOW_S, devices={})
    assert (told.state, told.gives) == (WorkState.IDLE, True)


def test_a_new_process_of_the_same_name_is_no_old_one():
    """A trainer that was replaced begins anew; one whose lease is lost and that registers again does not."""
    ledger = Ledger()
    assert ledger.stand(400.0, device=Device.LOW)[0].is_replaceable
    ledger.poll(still=entry("t1", 0))
    ledger.poll(still=entry("t1", ledger.steps // 2 + 10_000))
    ledger.poll(still=entry("t1", 1))
    assert not judge_all(ledger.history, window_s=WINDOW_S, devices={"t1": Device.LOW})


def test_a_lease_that_is_lost_ends_no_hang():
    """The master forgets a hung trainer's steps until its next report: that is no batch."""
    ledger = Ledger()
    ledger.stand(200.0)
    stood = entry("t1", ledger.history.trainers["t1"].steps)
    ledger.poll(still=entry("t1", 0))
    for _ in range(60):
        ledger.poll(still=stood)
    [told] = judge_all(ledger.history, window_s=WINDOW_S, devices={"t1": Device.LOW})
    assert (told.state, told.gives) == (WorkState.HUNG, True)


def test_a_window_of_nothing_never_gives_or_replaces():
    """`idleSeconds: 0`: a hung trainer is told of, and stays."""
    verdict, _ = Ledger().stand(4000.0, device=Device.LOW, window_s=0.0)
    assert (verdict.state, verdict.gives, verdict.is_replaceable) == (WorkState.HUNG, False, False)


GROUP_CASES = [
    ({"phase": "load"}, Device.UNKNOWN, ("idle", True, False)),
    ({"phase": "compute"}, Device.LOW, ("hung", True, True)),
    ({"phase": "compute"}, Device.UNKNOWN, ("hung", False, False)),
    ({"phase": "warm_up"}, Device.UNKNOWN, ("hung", False, False)),
    ({"phase": "unready", "is_left_behind": True}, Device.UNKNOWN, None),  # its master tells of it (ADR 0271)
    ({"phase": "unready", "is_left_behind": True}, Device.BUSY, None),
    ({"phase": "unready", "is_left_behind": True}, Device.LOW, ("hung", True, True)),
    ({"phase": "script"}, Device.LOW, None),  # a trainer alone in its script is excused with all others
    ({"phase": "transfer"}, Device.LOW, None),
    ({"phase": "sync"}, Device.LOW, None),
    ({"phase": "done"}, Device.LOW, None),
]


@pytest.mark.parametrize(("still", "device", "expected"), GROUP_CASES)
def test_a_member_of_a_group_that_stands_still_is_what_the_table_says(still, device, expected):
    """A group's phases tell who has the next move."""
    verdict, _ = Ledger(is_group=True).stand(400.0, still=still, device=device)
    assert (verdict and (verdict.state, verdict.gives, verdict.is_replaceable)) == expected


def test_the_first_step_of_a_changed_group_may_take_as_long_as_it_likes():
    """A new generation compiles again, and all its members wait for that."""
    ledger = Ledger(is_group=True)
    verdict, _ = ledger.stand(400.0, still={"phase": "compute"}, device=Device.LOW, generation=2)
    assert verdict is None


def test_what_is_said_names_the_trainer_once_and_changes_with_it_alone():
    """One event per trainer that becomes hung, and a condition whose text stands while nothing changes."""
    ledger = Ledger()
    first, _ = ledger.stand(20.0)
    later, _ = ledger.stand(20.0)
    said = [
        idle_report([one], ledger.history, is_group=False, window_s=WINDOW_S, format_since=lambda at_s: f"{at_s:g}")
        for one in (first, later)
    ]
    assert said[0] == said[1]
    assert said[0].holds
    assert said[0].message.startswith("t1 holds a batch and has not moved since 40,")
    assert len(idle_events((), [first], format_since=str)) == 1
    assert not idle_events([first], [later], format_since=str)


def test_trainers_that_wait_for_servers_are_told_with_how_many_would_do():
    """2 of 4 trainers wait; servers are shared, so fewer trainers would train as fast."""
    history, now_s = LedgerHistory(), 0.0
    for step in range(300):
        now_s += POLL_S
        shares = (0.1, 0.1, 0.72, 0.74)
        ledger = tuple(entry(f"t{n}", 2 + 2 * step, waiting_share=share) for n, share in enumerate(shares))
        progress = JobProgress(phase=JobPhase.TRAINING, ledger=ledger)
        history = observe_ledger(history, progress, now_s, is_group=False, window_s=WINDOW_S)
    said = idle_report((), history, is_group=False, window_s=WINDOW_S, format_since=str)
    assert not said.holds
    expected = "2 of 4 trainers waited for parameter servers 75 % of the last 5 min; 3 would train as fast"
    assert said.message == expected
    commits = replace(progress, phase=JobPhase.COMMITTING)
    history = observe_ledger(history, commits, now_s + POLL_S, is_group=False, window_s=WINDOW_S)
    assert idle_report((), history, is_group=False, window_s=WINDOW_S, format_since=str) == said


@pytest.mark.parametrize(("window_s", "lasted"), [(0.0, "5 min"), (WINDOW_S, "5 min"), (600.0, "10 min")])
@pytest.mark.parametrize("trainers", [4, 100])
def test_what_is_said_of_waiting_seldom_changes(window_s, lasted, trainers):
    """Shares that differ with each answer: each new text is a write, and one in twenty answers makes one."""
    chance, history = random.Random(1), LedgerHistory()
    texts: list[str] = []
    for step in range(1, 400):
        ledger = tuple(entry(f"t{n}", 2 + 2 * step, waiting_share=chance.random()) for n in range(trainers))
        progress = JobProgress(phase=JobPhase.TRAINING, ledger=ledger)
        history = observe_ledger(history, progress, POLL_S * step, is_group=False, window_s=window_s)
        said = idle_report((), history, is_group=False, window_s=window_s, format_since=str)
        texts.append(said.message)
    assert sum(one != other for one, other in pairwise(texts)) <= len(texts) / 20
    assert texts[-1].partition(";")[0].endswith(f"of the last {lasted}")
