"""A job with parameter servers under random loss: head only grows, agrees with every server, and END stays reachable.

The servers are marks without parameters (`driver.Marks`); the real buckets under every interleaving are the
checker's business (tests/protocol).
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from master import job
from master.api.messages.from_members import Ack, Acquire, Failed, Leave
from master.api.messages.to_members import Ended, Fenced, Granted, Wait
from master.api.positions import EMPTY
from master.job.domain.durable_records import Instant
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import AnswersOverdue, CommitDue, ReclaimWindowEnded, StreamBroken
from tests.unit.master.job.driver import SPEC, key, run_servers, serving

NAMES = st.sampled_from(["t0", "t1"])
WHICH = st.sampled_from([0, 1])
CONFIG = JobConfig(servers=2, bucket_count=3, high_water_batches=2, quarantine_after=2, backoff_limit=1_000)


class Servers(RuleBasedStateMachine):
    """Every message of the master may be late or repeated; servers die, masters are replaced, trainers fail."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.driver, self.servers = serving(CONFIG)
        self.processes = {"t0": 1, "t1": 0}
        self.requests: dict = {}
        self.reached = EMPTY

    def member(self, name):
        return key(name, self.processes[name])

    @rule(name=NAMES, restarted=st.booleans())
    def register_trainer(self, name, restarted):
        self.processes[name] += restarted or not self.processes[name]
        self.driver.trainer(name, self.processes[name])

    @rule(which=WHICH, restarted=st.booleans())
    def register_server(self, which, restarted):
        server = self.servers[which]
        if restarted:
            server.restart()
        else:
            server.register()

    @rule(target=leases, name=NAMES)
    def acquire(self, name):
        member = self.member(name)
        self.requests[member] = self.requests.get(member, 0) + 1
        (answer,) = self.driver.send(member, Acquire(request=self.requests[member]))
        assert isinstance(answer, Granted | Wait | Ended | Fenced)
        leases = answer.leases if isinstance(answer, Granted) else ()
        return multiple(*((member, lease) for lease in leases))

    @rule(lease=leases, which=WHICH)
    def push_to_one(self, lease, which):
        """The other server hears of it later, or never."""
        server, positions = self.servers[which], lease[1].positions
        if server.lineage == lease[1].token.lineage and not positions & (server.applied | server.skipped):
            server.applied |= positions

    @rule(lease=leases)
    def push_and_ack(self, lease):
        member, lease = lease
        if all(server.lineage == lease.token.lineage for server in self.servers):
            for server in self.servers:
                server.applied |= lease.positions - server.skipped
            self.driver.send(member, Ack(token=lease.token, positions=lease.positions))

    @rule(lease=leases)
    def fail(self, lease):
        member, lease = lease
        self.driver.send(member, Failed(positions=lease.positions.first(10), message="raised"))
        self.driver.send(member, Leave())

    @rule(name=NAMES)
    def fail_at_the_front(self, name):
        """A new process completes what it is given first, then raises: two such in a row and it is poison."""
        self.register_trainer(name, restarted=True)
        member = self.member(name)
        for request in (1, 2):
            (answer,) = self.driver.send(member, Acquire(request=request))
            if isinstance(answer, Granted) and request == 1:
                self.push_and_ack((member, answer.leases[0]))
            elif isinstance(answer, Granted):
                in_flight = answer.leases[0].positions.first(10)
                self.driver.send(member, Failed(positions=in_flight, message="raised"))
        self.driver.send(member, Leave())

    @rule(kind=st.sampled_from([CommitDue, AnswersOverdue, ReclaimWindowEnded]))
    def due(self, kind):
        if kind in self.driver.pending():
            self.driver.fire(kind)

    @rule(which=WHICH, back=st.integers(0, 3))
    def deliver(self, which, back):
        """The server's next message, or one that it has had already."""
        server = self.servers[which]
        waiting = [message for to, message in self.driver.sent if to == server.key]
        if len(server.inbox) < len(waiting):
            server.inbox.append(waiting[len(server.inbox)])
        for message in server.inbox[-1 - back :][:1]:
            if (answer := server.answer(message)) is not None:
                self.driver.send(server.key, answer)

    @rule()
    def deliver_all(self):
        run_servers(self.driver, self.servers)

    @rule(which=st.sampled_from(["t0", "t1", "s0", "s1"]))
    def break_stream(self, which):
        member = self.member(which) if which[0] == "t" else self.servers[int(which[1])].key
        self.driver.feed(StreamBroken(member=member))

    @rule(data=st.data())
    def deadline(self, data):
        pending = [event for _, event in job.deadlines(self.driver.state)]
        if pending:
            event = data.draw(st.sampled_from(pending))
            self.driver.feed(event)
            self.driver.feed(event)

    @rule(seconds=st.integers(0, 20))
    def time_passes(self, seconds):
        self.driver.now = Instant(self.driver.now + seconds * 10**9)

    @rule(returning=st.booleans())
    def take_over(self, returning):
        self.driver.start()
        if returning:
            for server in self.servers:
                server.register()

    @rule()
    def hold_back(self):
        self.driver.writes_go_through = self.driver.manifests_go_through = False

    @rule()
    def let_go(self):
        self.driver.let_go()

    @invariant()
    def head_only_grows(self):
        """I2."""
        data = self.driver.head.data if self.driver.head else EMPTY
        assert self.reached <= data
        self.reached = data

    @invariant()
    def files_agree(self):
        """Rule 22: every file of head has the same marks, and they are its data state."""
        if self.driver.head:
            marks = [group for file in self.driver.head.files for group in file.marks]
            assert {(group.applied, group.skipped) for group in marks} == {
                (self.driver.head.data, self.driver.head.quarantine)
            }

    def teardown(self):
        """END stays reachable: servers come back, one trainer does its work."""
        driver = self.driver
        driver.let_go()
        for name in ("t0", "t1"):
            driver.send(self.member(name), Leave())
        for server in self.servers:
            server.register()
        worker = driver.trainer("t9")
        for request in range(400):
            run_servers(driver, self.servers)
            answer = driver.acquire(worker, request)
            match answer:
                case Ended():
                    break
                case Fenced():
                    driver.trainer("t9", lineage=driver.state.number)
                case Granted():
                    self._train(worker, answer.leases)
                case Wait():
                    for kind in (ReclaimWindowEnded, CommitDue, AnswersOverdue):
                        if kind in driver.pending():
                            driver.fire(kind)
        else:
            raise AssertionError(f"no END: {driver.state.stage} {job.status(driver.state, driver.now)}")
        assert driver.head.data | driver.head.quarantine == SPEC.everything

    def _train(self, worker, leases):
        for lease in leases:
            for server in self.servers:
                server.applied |= lease.positions - server.skipped
            self.driver.send(worker, Ack(token=lease.token, positions=lease.positions))


Servers.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestServers = Servers.TestCase
