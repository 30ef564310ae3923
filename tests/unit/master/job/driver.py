"""Drives the master's core as the shell does: carries out its effects at once, keeps what it sent, checks invariants.

Parameter servers are played by `Marks`: what a server says about its buckets, without parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from master import job
from master.api.checkpoints.manifest import Manifest
from master.api.identities import NO_LINEAGE, DatasetSpec, Incarnation, Lineage, MemberName, TableSpec, Term
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import (
    Acquire,
    Activated,
    CutTaken,
    Declare,
    Held,
    MarksReport,
    RegisterServer,
    RegisterTrainer,
    Restored,
    SkipAnswer,
    Written,
)
from master.api.messages.to_members import Activate, AskMarks, Cut, Forget, Granted, Hold, Restore, Skip
from master.api.positions import EMPTY, PositionSet, union
from master.job.domain.durable_records import (
    BucketTable,
    ChangeTable,
    Durable,
    Instant,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordQuarantine,
    RecordServers,
    ReserveHighWater,
    SwapHead,
)
from master.job.domain.effects import AnswerServers, FindAdoptable, Persist, Send, WriteManifest
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import AdoptableFound, ManifestWritten, MessageReceived, Persisted, ServersRequested

SPEC = DatasetSpec(name="digits", size=100, epochs=2, batch_size=10)
TABLES = (TableSpec(name="w", shape=(4,)),)


def key(name: str, process: int = 1) -> MemberKey:
    return MemberKey(name=MemberName(name), incarnation=Incarnation(f"{name}/{process}"))


@dataclass
class Driver:
    """One master after another over one store; `writes_go_through` and `manifests_go_through` hold answers back."""

    config: JobConfig
    durable: Durable = field(default_factory=Durable)
    now: Instant = field(default=Instant(0))
    manifests: dict = field(default_factory=dict)
    writes_go_through: bool = True
    manifests_go_through: bool = True
    held_back: list = field(default_factory=list)
    sent: list = field(default_factory=list)
    effects: list = field(default_factory=list)
    term: int = 0

    def start(self) -> Driver:
        self.term += 1
        self.held_back.clear()
        self._follow(job.initial(self.config, self.durable, Term(self.term), self.now))
        return self

    def feed(self, event) -> list:
        """The messages that this event set off, of everybody."""
        before = len(self.sent)
        self._follow(job.handle(self.state, event, self.now))
        return self.sent[before:]

    def send(self, member: MemberKey, message) -> list:
        """What `member` is answered."""
        return [message for to, message in self.feed(MessageReceived(sender=member, message=message)) if to == member]

    def let_go(self) -> None:
        """Carries out what was held back."""
        self.writes_go_through = self.manifests_go_through = True
        while self.held_back:
            self._carry_out(self.held_back.pop(0))

    def fire(self, kind: type) -> list:
        """The pending deadline of this kind passes."""
        events = [event for _, event in job.deadlines(self.state) if isinstance(event, kind)]
        assert events, f"no {kind.__name__} is pending"
        return self.feed(events[0])

    def pending(self) -> set[type]:
        return {type(event) for _, event in job.deadlines(self.state)}

    def _follow(self, step) -> None:
        self.state = step.state
        hash(self.state)
        job.check_invariants(self.state)
        for effect in step.effects:
            self.effects.append(effect)
            self._carry_out(effect)

    def _carry_out(self, effect) -> None:
        match effect:
            case Send(to=to, message=message):
                self.sent.append((to, message))
            case Persist() if not self.writes_go_through:
                self.held_back.append(effect)
            case WriteManifest() if not self.manifests_go_through:
                self.held_back.append(effect)
            case Persist(write=write):
                self._store(write)
                self._follow(job.handle(self.state, Persisted(write=write), self.now))
            case WriteManifest(manifest=manifest):
                self.manifests[manifest.id] = manifest
                self._follow(job.handle(self.state, ManifestWritten(manifest=manifest.id), self.now))
            case FindAdoptable(parent=parent, lineage=lineage):
                found = [m for m in self.manifests.values() if m.parent == parent and m.lineage == lineage]
                event = AdoptableFound(manifest=found[-1] if found else None)
                self._follow(job.handle(self.state, event, self.now))

    def _store(self, write) -> None:
        durable = self.durable
        match write:
            case SwapHead():
                assert write.lineage == durable.lineage
                assert write.parent == (durable.head.id if durable.head else None)
                self.durable = replace(durable, head=self.manifests[write.manifest])
            case RaiseLineage():
                assert write.old == durable.lineage
                assert write.new.base == (durable.head.id if durable.head else None)
                route = write.route or durable.route
                self.durable = replace(durable, lineage=write.new, route=route, intents=(), backups=write.backups)
            case ChangeTable():
                assert write.old == BucketTable(route=durable.route, intents=durable.intents, backups=durable.backups)
                new = write.new
                self.durable = replace(durable, route=new.route, intents=new.intents, backups=new.backups)
            case RecordQuarantine():
                assert write.old == durable.lineage
                self.durable = replace(durable, lineage=write.new)
            case RecordDataset():
                assert durable.dataset is None
                self.durable = replace(durable, dataset=write.record)
            case RecordServers():
                self.durable = replace(durable, servers=write.count)
            case ReserveHighWater():
                high_water = max(durable.high_water, write.below)
                self.durable = replace(durable, high_water=high_water, trainers=write.trainers)

    def want(self, count: int, request: int = 0) -> list[AnswerServers]:
        """The cluster side asks for so many servers; what it is answered by now."""
        before = len(self.effects)
        self.feed(ServersRequested(request=request, count=count))
        return [effect for effect in self.effects[before:] if isinstance(effect, AnswerServers)]

    @property
    def head(self) -> Manifest | None:
        return self.durable.head

    # ---- trainers

    def trainer(self, name: str, process: int = 1, **said) -> MemberKey:
        """Registers and declares."""
        member = key(name, process)
        declares = said.pop("declares", self.plain_declare())
        fields = {"ordinal": int(name[1:]) if name[1:].isdigit() else 0, **said}
        self.send(member, RegisterTrainer(name=member.name, incarnation=member.incarnation, **fields))
        if declares:
            self.send(member, declares)
        return member

    def plain_declare(self) -> Declare:
        return Declare(dataset=SPEC, tables=TABLES if self.config.servers else ())

    def acquire(self, member: MemberKey, request: int, shards: int = 1):
        (answer,) = self.send(member, Acquire(request=request, shards=shards))
        return answer

    def leases(self, member: MemberKey, request: int, shards: int = 1):
        answer = self.acquire(member, request, shards)
        assert isinstance(answer, Granted), answer
        return answer.leases


@dataclass
class Marks:
    """A parameter server as the master hears it: all its buckets have the same marks."""

    driver: Driver
    ordinal: int
    process: int = 1
    lineage: Lineage = NO_LINEAGE
    buckets: PositionSet = EMPTY
    applied: PositionSet = EMPTY
    skipped: PositionSet = EMPTY
    inbox: list = field(default_factory=list)
    is_leaving: bool = False

    @property
    def key(self) -> MemberKey:
        return key(f"s{self.ordinal}", self.process)

    def register(self) -> list:
        return self.driver.send(
            self.key,
            RegisterServer(
                name=self.key.name,
                ordinal=self.ordinal,
                incarnation=self.key.incarnation,
                address=f"{self.key.name}:1",
                lineage=self.lineage,
                is_leaving=self.is_leaving,
            ),
        )

    def marks(self) -> tuple[BucketMarks, ...]:
        groups = BucketMarks(buckets=self.buckets, applied=self.applied, skipped=self.skipped)
        return (groups,) if self.buckets else ()

    def restart(self) -> list:
        """The process dies and another one comes."""
        self.process += 1
        self.inbox.clear()
        self.lineage, self.buckets, self.applied, self.skipped = NO_LINEAGE, EMPTY, EMPTY, EMPTY
        return self.register()

    def keeps(self, said: Restore) -> bool:
        """It is told to keep all that it has, and that is all that it is to have."""
        kept = union(named.buckets for named in said.kept if named.lineage == self.lineage)
        return bool(kept) and kept == said.buckets == self.buckets

    def answer(self, said):
        """What this server answers to one message of the master, or None."""
        match said:
            case Restore() if said.incarnation == self.key.incarnation and said.lineage > self.lineage:
                if not self.keeps(said):
                    self.buckets, self.applied, self.skipped = said.buckets, said.data, said.quarantine
                self.lineage = said.lineage
                return Restored(lineage=said.lineage)
            case AskMarks():
                return MarksReport(lineage=self.lineage, marks=self.marks())
            case Skip() if said.lineage == self.lineage:
                has = bool(self.applied & said.positions)
                if not has:
                    self.skipped |= said.positions
                kept, gone = (EMPTY, self.buckets) if has else (self.buckets, EMPTY)
                return SkipAnswer(lineage=self.lineage, positions=said.positions, skipped=kept, applied=gone)
            case Activate() if said.lineage == self.lineage:
                self.buckets |= said.buckets
                return Activated(lineage=said.lineage, buckets=said.buckets, version=said.version)
            case Forget() if said.lineage == self.lineage:
                self.buckets -= said.buckets
            case Hold():
                return Held(cut=said.cut, marks=self.marks())
            case Cut():
                self.applied |= said.data  # whoever trains sends what is missing
                file = FileRecord(
                    name=f"{said.cut}-{self.ordinal}",
                    size_bytes=1,
                    digest="d",
                    lineage=self.lineage,
                    marks=self.marks(),
                )
                self.driver.send(self.key, CutTaken(cut=said.cut))
                return Written(cut=said.cut, file=file)
        return None


def run_servers(driver: Driver, servers: list[Marks], *, rounds: int = 50) -> None:
    """Servers answer what they were sent since they last did, until nobody has anything to say."""
    for _ in range(rounds):
        said = False
        for server in servers:
            waiting = [message for to, message in driver.sent if to == server.key]
            for message in waiting[len(server.inbox) :]:
                server.inbox.append(message)
                answer = server.answer(message)
                if answer is not None:
                    said = True
                    driver.send(server.key, answer)
        if not said:
            return
    raise AssertionError("master and servers talk without end")


def serving(config: JobConfig | None = None) -> tuple[Driver, list[Marks]]:
    """A job with two servers that serves, and nobody training yet."""
    driver = Driver(config or JobConfig(servers=2, bucket_count=4)).start()
    driver.trainer("t0")
    servers = [Marks(driver, ordinal) for ordinal in range(driver.config.servers)]
    for server in servers:
        server.register()
    run_servers(driver, servers)
    driver.trainer("t0", declares=None)  # fenced when the lineage was raised
    return driver, servers
