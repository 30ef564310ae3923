"""Plain sharding under random trainers: whatever they do, the books stay whole and END comes with all in head."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from master import job
from master.api.messages.from_members import Ack, Acquire, Failed, Leave, Progress, Return
from master.api.messages.to_members import Ended, Granted, Wait
from master.api.positions import PositionSet, union
from master.job.domain.durable_records import Instant
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import CommitDue, LeaseExpired, ReclaimWindowEnded, StreamBroken
from tests.unit.master.job.driver import SPEC, Driver, key

NAMES = st.sampled_from(["t0", "t1", "t2"])
CONFIG = JobConfig(servers=0, high_water_batches=2, quarantine_after=2, backoff_limit=1_000)


class Sharding(RuleBasedStateMachine):
    """Trainers that acquire, ack, return, fail, hang, crash and come back; a master that is replaced at any moment."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(CONFIG).start()
        self.processes = dict.fromkeys(("t0", "t1", "t2"), 0)
        self.held: dict = {}
        self.requests: dict = {}
        self.committed = PositionSet()

    def member(self, name):
        return key(name, self.processes[name])

    def present(self, name) -> bool:
        trainer = self.driver.state.members.try_trainer(self.member(name))
        return trainer is not None and trainer.is_registered and trainer.is_connected

    @rule(name=NAMES, restarted=st.booleans(), keeps=st.booleans())
    def register(self, name, restarted, keeps):
        """A new process, or the same one after a broken stream or FENCED."""
        if restarted or not self.processes[name]:
            self.processes[name] += 1
        member = self.member(name)
        held = tuple(self.held.get(member, ())) if keeps else ()
        self.driver.trainer(name, self.processes[name], held=held)
        holder = self.driver.state.dispatch.holders.get(member.incarnation)
        self.held[member] = list(holder.leases) if holder else []

    @rule(target=leases, name=NAMES, shards=st.integers(1, 3), repeats=st.booleans())
    def acquire(self, name, shards, repeats):
        """Grants are disjoint from every live lease; the same request gets the same answer."""
        member = self.member(name)
        if not self.present(name):
            return multiple()
        self.requests[member] = self.requests.get(member, 0) + 1
        answers = self.driver.send(member, Acquire(request=self.requests[member], shards=shards))
        if repeats:
            again = self.driver.send(member, Acquire(request=self.requests[member], shards=shards))
            assert again == answers
        if not isinstance(answers[0], Granted):
            return multiple()
        for lease in answers[0].leases:
            assert len({p // SPEC.size for p in (lease.positions.bounds[0], lease.positions.bounds[-1] - 1)}) == 1
        self.held[member] += answers[0].leases
        return multiple(*((member, lease) for lease in answers[0].leases))

    @rule(lease=leases, share=st.integers(0, 40))
    def ack(self, lease, share):
        """Also long after the lease is gone, and twice."""
        member, lease = lease
        before = self.driver.state.dispatch
        live = member.incarnation in before.holders and lease.token in {
            one.token for one in before.holders[member.incarnation].leases
        }
        self.driver.send(member, Ack(token=lease.token, positions=lease.positions.first(share)))
        if not live:
            assert self.driver.state.dispatch.done == before.done

    @rule(lease=consumes(leases))
    def give_back(self, lease):
        member, lease = lease
        self.driver.send(member, Return(token=lease.token, positions=lease.positions))

    @rule(name=NAMES, steps=st.integers(0, 50), rate=st.floats(0, 100))
    def progress(self, name, steps, rate):
        self.driver.send(self.member(name), Progress(steps=steps, samples_per_s=rate))

    @rule(lease=leases)
    def fail(self, lease):
        member, lease = lease
        self.driver.send(member, Failed(positions=lease.positions.first(5), message="raised"))
        self.driver.send(member, Leave())

    @rule(name=NAMES)
    def break_stream(self, name):
        self.driver.feed(StreamBroken(member=self.member(name)))

    @rule(name=NAMES)
    def leave(self, name):
        self.driver.send(self.member(name), Leave())

    @rule(data=st.data())
    def deadline(self, data):
        """Any pending deadline passes, early or late, and a second time."""
        pending = [event for _, event in job.deadlines(self.driver.state)]
        if pending:
            event = data.draw(st.sampled_from(pending))
            self.driver.feed(event)
            self.driver.feed(event)

    @rule(seconds=st.integers(0, 20))
    def time_passes(self, seconds):
        self.driver.now = Instant(self.driver.now + seconds * 10**9)

    @rule()
    def take_over(self):
        self.driver.start()

    @precondition(lambda self: self.driver.head is not None)
    @rule()
    def nothing_committed_is_forgotten(self):
        """I2: head only grows."""
        assert self.committed <= self.driver.head.data
        self.committed = self.driver.head.data

    @rule()
    def store_goes_away(self):
        self.driver.writes_go_through = False

    @rule()
    def store_comes_back(self):
        self.driver.let_go()

    @invariant()
    def high_water_covers_all_leases_while_the_store_answers(self):
        """Rule 18: what a new master may grant before the window ends was never leased."""
        if self.driver.held_back:
            return
        for holder in self.driver.state.dispatch.holders.values():
            for lease in holder.leases:
                assert lease.positions.bounds[-1] <= self.driver.durable.high_water

    def teardown(self):
        """END stays reachable: one trainer that does its work finishes the job."""
        driver = self.driver
        driver.let_go()
        for name in ("t0", "t1", "t2"):
            driver.send(self.member(name), Leave())
        worker = driver.trainer("t9")
        for request in range(1, 400):
            answer = driver.acquire(worker, request)
            match answer:
                case Ended():
                    break
                case Granted():
                    for lease in answer.leases:
                        driver.send(worker, Ack(token=lease.token, positions=lease.positions))
                case Wait():
                    for kind in (ReclaimWindowEnded, LeaseExpired, CommitDue):
                        if kind in driver.pending():
                            driver.fire(kind)
        else:
            raise AssertionError(f"no END: {job.status(driver.state, driver.now)}")
        assert driver.head.data | driver.head.quarantine == SPEC.everything
        assert not driver.head.data & driver.head.quarantine
        assert driver.head.quarantine <= union([driver.durable.lineage.quarantine])


Sharding.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestSharding = Sharding.TestCase
