"""A group's master over a store in memory, and trainers that do what rules 70 to 83 say, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from master import group
from master.api.checkpoints.manifest import Manifest
from master.api.group_shares import copy_marks, total_steps
from master.api.identities import DatasetSpec, Incarnation, Lineage, MemberName, Term
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import Declare
from master.api.messages.generations import (
    BrokenGeneration,
    Generation,
    GroupPhase,
    GroupProgress,
    LeftGeneration,
    NewGeneration,
    OfferState,
    RegisterReplica,
    StateId,
)
from master.api.positions import EMPTY
from master.job.domain.durable_records import (
    SECOND,
    DatasetRecord,
    Durable,
    Instant,
    LineageRecord,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordFinalSave,
    RecordGeneration,
    RecordQuarantine,
    SwapHead,
)
from master.job.domain.effects import Persist, Send, WriteManifest
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import (
    HeadNamed,
    ManifestWritten,
    MessageReceived,
    Persisted,
    PersistRefused,
    StreamBroken,
)

SPEC = DatasetSpec(name="digits", size=40, epochs=2, batch_size=8)
STEPS = total_steps(SPEC)
CONFIG = JobConfig(servers=0)
START = StateId(lineage=Lineage(1), generation=0, step=0)


def key(name: str, process: int = 1) -> MemberKey:
    return MemberKey(name=MemberName(name), incarnation=Incarnation(f"{name}/{process}"))


@dataclass
class GroupDriver:
    """One master after another over one store.

    Without `writes_go_through` the store's answers are held back, without `names_head` the folder's file HEAD is, and
    without `writes_manifests` the manifests are.
    """

    config: JobConfig = CONFIG
    spec: DatasetSpec = SPEC
    durable: Durable = field(default_factory=Durable)
    now: Instant = field(default=Instant(0))
    manifests: dict = field(default_factory=dict)
    writes_go_through: bool = True
    names_head: bool = True
    writes_manifests: bool = True
    held_back: list = field(default_factory=list)
    sent: list = field(default_factory=list)
    effects: list = field(default_factory=list)
    term: int = 0

    def start(self) -> GroupDriver:
        self.term += 1
        self.held_back.clear()
        self._follow(group.initial(self.config, self.durable, Term(self.term), self.now))
        if self.names_head and self.durable.head is not None:
            self.feed(HeadNamed(manifest=self.durable.head.id))
        return self

    def feed(self, event) -> list:
        before = len(self.sent)
        self._follow(group.handle(self.state, event, self.now))
        return self.sent[before:]

    def say(self, member: MemberKey, message) -> list:
        """What `member` is answered."""
        answers = self.feed(MessageReceived(sender=member, message=message))
        return [said for to, said in answers if to == member]

    def pass_time(self, seconds: float) -> list:
        """All deadlines until then pass, each at its instant."""
        before, until = len(self.sent), self.now + int(seconds * SECOND)
        for _ in range(10_000):
            due = sorted(
                ((at, event) for at, event in group.deadlines(self.state) if at <= until), key=lambda one: one[0]
            )
            if not due:
                break
            self.now = Instant(max(self.now, due[0][0]))
            self.feed(due[0][1])
        else:
            raise AssertionError(f"deadlines without end: {due}")
        self.now = Instant(until)
        return self.sent[before:]

    def pending(self) -> set[type]:
        return {type(event) for _, event in group.deadlines(self.state)}

    def let_go(self) -> None:
        self.writes_go_through = True
        while self.held_back:
            self._carry_out(self.held_back.pop(0))

    def break_stream(self, member: MemberKey) -> list:
        return self.feed(StreamBroken(member=member))

    # ---- members

    def join(self, name: str, process: int = 1, **said) -> MemberKey:
        """Registers and declares."""
        member = key(name, process)
        self.say(member, registration(member, **said))
        self.say(member, Declare(dataset=self.spec, layout="l"))
        return member

    def progress(self, member: MemberKey, generation: int, step: int, phase=GroupPhase.COMPUTE, **said) -> list:
        made_in = said.pop("made_in", generation if step else 0)
        own = StateId(lineage=self.state.number, generation=made_in, step=step)
        fields = {"is_synced": True, "steps_begun": step + 1, "state": own} | said
        return self.say(member, GroupProgress(generation=generation, phase=phase, **fields))

    def report(self, member: MemberKey, left: int, state: StateId | None = None) -> list:
        return self.say(member, LeftGeneration(left=left, state=state))

    def offer(self, member: MemberKey, step: int, stamp: int, *, made_in: int | None = None, **said) -> list:
        own = StateId(lineage=self.state.number, generation=stamp if made_in is None else made_in, step=step)
        return self.say(member, offer_of(own, stamp, **said))

    @property
    def record(self) -> Generation:
        return self.durable.generation.current

    def names(self) -> list[str]:
        return [one.name for one in self.record.members]

    def told(self, kind: type, member: MemberKey) -> list:
        return [said for to, said in self.sent if to == member and isinstance(said, kind)]

    # ---- effects

    def _follow(self, step) -> None:
        before = getattr(self, "state", None)
        self.state = step.state
        hash(self.state)
        group.check_invariants(self.state)
        if before is not None and before.term == self.state.term and before.head is not None:
            assert self.state.head.step >= before.head.step
        for effect in step.effects:
            self.effects.append(effect)
            self._carry_out(effect)

    def _carry_out(self, effect) -> None:
        match effect:
            case Send(to=to, message=message):
                if isinstance(message, NewGeneration):
                    assert message.record == self.durable.generation.current, "rule 76: NEW before it is durable"
                self.sent.append((to, message))
            case Persist() if not self.writes_go_through:
                self.held_back.append(effect)
            case Persist(write=write):
                done = self.store(write)
                event = Persisted(write=write) if done else PersistRefused(write=write, reason="another value")
                self._follow(group.handle(self.state, event, self.now))
                if done and self.names_head and isinstance(write, SwapHead):
                    self._follow(group.handle(self.state, HeadNamed(manifest=write.manifest), self.now))
            case WriteManifest(manifest=manifest) if self.writes_manifests:
                self.manifests[manifest.id] = manifest
                self._follow(group.handle(self.state, ManifestWritten(manifest=manifest.id), self.now))

    def store(self, write) -> bool:
        """The transaction, with its comparisons."""
        durable, head = self.durable, self.durable.head.id if self.durable.head else None
        match write:
            case SwapHead():
                ok = (write.lineage, write.parent, write.generation) == (durable.lineage, head, durable.generation)
                after = replace(durable, head=self.manifests[write.manifest])
            case RaiseLineage() | RecordQuarantine():
                ok, after = write.old == durable.lineage, replace(durable, lineage=write.new)
            case RecordDataset():
                ok, after = durable.dataset == write.old, replace(durable, dataset=write.record)
            case RecordGeneration():
                ok = (write.old, write.head, write.lineage) == (durable.generation, head, durable.lineage)
                after = replace(durable, generation=write.new)
            case RecordFinalSave():
                ok, after = (write.old, write.manifest) == (durable.final_save, head), replace(durable, final_save=head)
        if ok:
            self.durable = after
        return ok


def registration(member: MemberKey, **said) -> RegisterReplica:
    ordinal = int(member.name[1:])
    fields = {"ordinal": ordinal, "address": f"unix:/{member.name}"} | said
    return RegisterReplica(name=member.name, incarnation=member.incarnation, **fields)


def offer_of(
    own: StateId,
    stamp: int,
    *,
    offer: int = 1,
    shard: int = 0,
    shards: int = 1,
    skipped=EMPTY,
    contents: str = "",
    spec: DatasetSpec = SPEC,
) -> OfferState:
    file = FileRecord(
        name=f"s{own.step}-{own.generation}-{shard}",
        size_bytes=1,
        digest="d",
        lineage=own.lineage,
        marks=copy_marks(spec, own.step, skipped, shard),
    )
    return OfferState(
        offer=offer, stamp=stamp, state=own, skipped=skipped, shard=shard, shards=shards, file=file, contents=contents
    )


def training(*names: str, step: int = 1, **config) -> tuple[GroupDriver, list[MemberKey]]:
    """A group of these trainers, synced, that has done so many steps."""
    driver = GroupDriver(config=replace(CONFIG, **config)).start()
    members = [driver.join(name) for name in names]
    driver.pass_time(1.5)
    for member in members:
        driver.progress(member, driver.record.number, step)
    return driver, members


def broken_number(driver: GroupDriver, member: MemberKey) -> int:
    said = driver.told(BrokenGeneration, member)
    return said[-1].number if said else 0


def lose_records(driver: GroupDriver, head: Manifest | None = None) -> None:
    """The next master, with what `master.durable.refounding` makes of a checkpoint folder with this head."""
    lost = Durable()
    if head is not None:
        lineage = LineageRecord(number=Lineage(head.lineage + 1), base=head.id, quarantine=head.quarantine)
        lost = Durable(lineage=lineage, dataset=DatasetRecord(dataset=head.dataset), head=head)
    driver.durable = lost
    driver.sent.clear()
    driver.start()
