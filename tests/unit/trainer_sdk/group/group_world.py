"""A group in one thread: the members' real cores between a master, collectives and storage as the rules have them.

Bits of a replica are the tuple of the steps that it applied: (generation, step, positions of each rank).
"""

from dataclasses import replace
from zlib import crc32

from master.api.group_shares import step_positions, total_steps
from master.api.identities import DatasetSpec, Incarnation, Lineage, ManifestId, MemberName
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import (
    BrokenGeneration,
    Generation,
    GroupEnded,
    GroupMember,
    HeadState,
    NewGeneration,
    OfferState,
    ReplicaRegistered,
    StateId,
)
from master.api.messages.to_members import OfferAnswered
from master.api.positions import union
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CloseGroup,
    CompareReplicas,
    ConnectGroup,
    ContributeWord,
    CopyTaken,
    CopyWritten,
    DigestTaken,
    DrainAsked,
    FinishScript,
    GatherStates,
    GiveStep,
    GroupConnected,
    GroupFailed,
    LoadHead,
    ReceiveState,
    ReplicasCompared,
    SendState,
    StateCaptured,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    StreamOpened,
    TakeCopy,
    TakeDigest,
    TellMaster,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, check_member
from trainer_sdk.group.core.replica_digests import digest_of
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.steps import share_of
from trainer_sdk.group.core.transitions import give, handle_member

DATASET = DatasetSpec(name="digits", size=7, epochs=2, batch_size=3, seed=1)  # six steps, the third and sixth shorter
LINEAGE = Lineage(1)
FIRST = HeadState(state=StateId(lineage=LINEAGE, generation=0, step=0))


def incarnation(i: int) -> Incarnation:
    return Incarnation(f"process-{i}")


def fresh(i: int) -> MemberState:
    return MemberState(
        name=MemberName(f"trainer-{i}"),
        ordinal=i,
        incarnation=incarnation(i),
        address=f"unix:{i}",
        dataset=DATASET,
        layout="layout",
    )


def record_of(number: int, *members: int, planned_from: int = 0, head: HeadState = FIRST, **kw) -> Generation:
    listed = tuple(GroupMember(name=f"trainer-{i}", incarnation=incarnation(i), address=f"unix:{i}") for i in members)
    return Generation(number=number, lineage=LINEAGE, members=listed, head=head, planned_from=planned_from, **kw)


class World:
    """Members 0 to n - 1; `moves` are the enabled moves, each a name and an action."""

    def __init__(self, start: int, later: int = 0, *, compares: bool = False) -> None:
        """`compares`: replicas have digests."""
        self.compares = compares
        self.state = {i: self._fresh(i) for i in range(start)}
        self.waiting = list(range(start, start + later))
        self.bits = dict.fromkeys(self.state, ())
        self.inbox = {i: [] for i in self.state}
        self.gone: set[int] = set()
        self.dead: set[int] = set()
        self.lost: set[int] = set()
        self.taken: dict[int, tuple] = {}  # copies in memory: bits
        self.steps: dict[tuple[int, int], dict[int, object]] = {}  # (generation, step): positions by rank
        self.wanting: dict[int, set[int]] = {}
        self.away: dict[int, set[int]] = {}
        self.entries: dict[int, dict[int, object]] = {}
        self.words: dict[tuple[int, int], dict[int, object]] = {}
        self.last_words: dict[int, dict[int, object]] = {}
        self.sent: dict[tuple[int, int], tuple] = {}
        self.files: dict[str, tuple] = {}
        self.head = FIRST
        self.head_bits = ()
        self.offers: list[tuple[int, OfferState]] = []
        self.records: dict[int, Generation] = {}
        self.broken: set[int] = set()
        self.draining: set[int] = set()
        self.record = self._write(record_of(1, *range(start)))
        self.ended = False
        self.faults = 0
        for i in self.state:
            self.feed(i, StreamOpened())
            self.feed(i, ReplicaRegistered(term=1, lineage=LINEAGE, dataset=DATASET, report_every_s=1.0))

    def _fresh(self, i: int) -> MemberState:
        return replace(fresh(i), can_compare=self.compares)

    # ---- members ------------------------------------------------------------------------------------------------

    def feed(self, i: int, event) -> None:
        before = self.state[i]
        step = handle_member(before, event)
        self.state[i] = step.state
        check_member(step.state)
        for effect in step.effects:
            match effect:
                case ConnectGroup(record=record):
                    self.wanting.setdefault(record.number, set()).add(i)
                case AbortGroup(number=number):
                    self.away.setdefault(number, set()).add(i)
                case CloseGroup(number=number):
                    self._check_closing(i, number)
                case ContributeWord(word=word):
                    share = share_of(before)
                    self.words.setdefault((word.generation, word.step), {})[share.rank] = word
                    self.steps.setdefault((word.generation, word.step), {})[share.rank] = share.positions
                case TellMaster(message=OfferState() as offered):
                    self.offers.append((i, offered))
                case _:
                    pass
        self._check_ids()

    def _check_closing(self, i: int, number: int) -> None:
        """Rule 82: nobody waits for anything of that group any more that is not on its way already."""
        for j in set(self._ranks(self.records[number])) - self.dead - {i}:
            state = self.state[j]
            words = self.words.get((number, state.step), {})
            is_served = state.phase is MemberPhase.COMPLETE or (
                state.phase is MemberPhase.CONTRIBUTED and len(words) == len(state.record.members)
            )
            assert state.number != number or is_served, f"{i} closes generation {number} under {j}"

    def _ranks(self, record: Generation) -> list[int]:
        return [int(m.incarnation.split("-")[1]) for m in record.members]

    def _check_ids(self) -> None:
        seen = {FIRST.state: ()} | ({self.head.state: self.head_bits} if self.head.manifest else {})
        for i, state in self.state.items():
            if state.state is not None and i not in self.dead:
                assert seen.setdefault(state.state, self.bits[i]) == self.bits[i], (
                    f"{state.state} names two states (I2)"
                )
                assert len(self.bits[i]) == state.step, "bits of another step than claimed (I1)"

    def _apply(self, i: int) -> None:
        state = self.state[i]
        parts = self.steps[state.number, state.step]
        todo = step_positions(DATASET, state.step) - state.record.quarantine
        assert union(parts.values()) == todo
        assert sum(map(len, parts.values())) == len(todo), "a position twice or never (I1)"
        self.bits[i] = (*self.bits[i], (state.number, state.step))
        self.feed(i, StepApplied())

    def moves(self):  # noqa: C901  one kind of move a branch
        for i, state in self.state.items():
            if i in self.dead or i in self.gone:
                continue
            for k, message in enumerate(self.inbox[i]):
                yield f"{i} hears {type(message).__name__}", lambda i=i, k=k: self.feed(i, self.inbox[i].pop(k))
            for number, wanting in self.wanting.items():
                ranks = self._ranks(self.records[number])
                is_pending = i in wanting and number in (state.number, state.plan.number if state.plan else 0)
                is_known = state.is_connected if number == state.number else state.is_prepared
                if is_pending and not is_known and set(ranks) <= wanting:
                    yield f"{i} connects {number}", lambda i=i, n=number: self.feed(i, GroupConnected(number=n))
            number = state.number
            if number and state.phase is not MemberPhase.COMPLETE and self._is_failing(i, number):
                yield f"{i} fails in {number}", lambda i=i, n=number: self.feed(i, GroupFailed(number=n))
            if state.phase is MemberPhase.COMPLETE:
                yield f"{i} applies", lambda i=i: self._apply(i)
                continue
            words = self.words.get((number, state.step), {})
            if state.phase is MemberPhase.CONTRIBUTED:
                if len(words) == len(state.record.members):
                    ordered = tuple(words[rank] for rank in sorted(words))
                    yield (
                        f"{i} completes",
                        lambda i=i, n=number, w=ordered: self.feed(i, WordsGathered(number=n, words=w)),
                    )
                continue
            yield from self._script_moves(i, next_work(state))
            if state.writing:
                yield f"{i} has written", lambda i=i: self._written(i)

    def _is_failing(self, i: int, number: int) -> bool:
        others = set(self._ranks(self.records[number])) - {i}
        return bool(others & (self.dead | self.away.get(number, set())))

    def _script_moves(self, i: int, work):  # noqa: C901  one kind of work a branch
        match work:
            case GatherStates(number=number, entry=entry):
                entries = self.entries.setdefault(number, {})
                if i not in entries:
                    yield f"{i} enters the sync of {number}", lambda: entries.update({i: entry})
                elif len(entries) == len(self.records[number].members):
                    listed = tuple(entries[j] for j in self._ranks(self.records[number]))
                    yield f"{i} has the list", lambda: self.feed(i, StatesGathered(number=number, entries=listed))
            case SendState(number=number, to=to):
                yield f"{i} sends", lambda: self._send(i, number, to)
            case ReceiveState(number=number, state=state, skipped=skipped):
                if (number, i) in self.sent:
                    yield f"{i} receives", lambda: self._take(i, number, state, skipped, self.sent[number, i])
            case LoadHead(number=number, head=head):
                bits = self.files[head.files[0].name]
                yield f"{i} loads", lambda: self._take(i, number, head.state, head.skipped, bits)
            case TakeDigest(state=state):
                digest = digest_of(state, {"bits": crc32(repr(self.bits[i]).encode())})
                yield f"{i} digests", lambda: self.feed(i, DigestTaken(digest=digest))
            case CompareReplicas(number=number, word=word):
                words = self.last_words.setdefault(number, {})
                if i not in words:
                    yield f"{i} compares", lambda: words.update({i: word})
                elif len(words) == len(self.records[number].members):
                    listed = tuple(words[j] for j in self._ranks(self.records[number]))
                    yield f"{i} has compared", lambda: self.feed(i, ReplicasCompared(number=number, words=listed))
            case TakeCopy():
                yield f"{i} copies", lambda: self._copy(i, work)
            case GiveStep():
                yield f"{i} trains", lambda: self._train(i)
            case FinishScript():
                yield f"{i} ends", lambda: self.gone.add(i)

    def _send(self, i, number, to):
        ranks = self._ranks(self.records[number])
        self.sent |= {(number, ranks[rank]): self.bits[i] for rank in to}
        self.feed(i, StateCaptured(number=number))

    def _take(self, i, number, state, skipped, bits):
        self.bits[i] = bits
        self.feed(i, StateTaken(number=number, state=state, skipped=skipped))

    def _copy(self, i, work):
        self.taken[i] = self.bits[i]
        self.feed(i, CopyTaken(work=work))

    def _written(self, i):
        number = self.state[i].writing
        name = f"{i}-{number}"
        self.files[name] = self.taken[i]
        file = FileRecord(name=name, size_bytes=1, digest="d", lineage=LINEAGE, marks=())
        self.feed(i, CopyWritten(number=number, file=file))

    def _train(self, i):
        self.state[i] = give(self.state[i])
        self.feed(i, StepReduced())

    # ---- faults -------------------------------------------------------------------------------------------------

    def kill(self, i):
        self.dead.add(i)
        self.faults += 1

    def cut(self, i):
        """A collective fails although all are alive."""
        if i not in self.dead | self.gone and self.state[i].number:
            self.faults += 1
            self.feed(i, GroupFailed(number=self.state[i].number))

    def drain(self, i):
        self.draining.add(i)
        self.feed(i, DrainAsked(grace_s=30))

    def join(self):
        i = self.waiting.pop(0)
        self.state[i], self.bits[i], self.inbox[i] = self._fresh(i), (), []
        self.feed(i, StreamOpened())
        self.feed(i, ReplicaRegistered(term=1, lineage=LINEAGE, dataset=DATASET, report_every_s=1.0))

    # ---- the master ---------------------------------------------------------------------------------------------

    def _write(self, record: Generation) -> Generation:
        self.records[record.number] = record
        for i in self._ranks(record) + (self._ranks(self.records[record.planned_from]) if record.planned_from else []):
            self.inbox[i] += [NewGeneration(record=record)] * (1 + record.number % 2)  # some twice
        return record

    def _is_begun(self) -> bool:
        """The sync of the record has its list, at all members."""
        return len(self.entries.get(self.record.number, {})) == len(self.record.members)

    def master_moves(self):
        record = self.record
        old = self.records.get(record.planned_from) if not self._is_begun() else None
        concerned = set(self._ranks(record)) | (set(self._ranks(old)) if old else set())
        for i in self.dead - self.lost:
            yield f"the lease of {i} runs out", lambda i=i: self.lost.add(i)
        left_early = self.gone & set(self._ranks(record)) if not self.ended else set()
        trouble = (
            (self.lost & concerned) - self.gone
            or left_early
            or any(
                self.state[i].record is None and i not in self.gone and self.state[i].left >= (old or record).number
                for i in concerned - self.dead
            )
        )
        if trouble and record.number not in self.broken and not self.ended:  # the end ends collectives by itself
            yield "BROKEN", lambda: self._break(concerned)
        is_out = {i: s.record is None for i, s in self.state.items()}
        free = [i for i in self.state if is_out[i] and i not in self.dead | self.gone and self._stays(i)]
        if (
            record.number in self.broken
            and free
            and all(
                i in self.lost | self.gone or (is_out[i] and self.state[i].left >= record.number) for i in concerned
            )
        ):
            yield "a record", lambda: self._next(record_of(record.number + 1, *sorted(free), head=self.head))
        if record.number not in self.broken and not trouble and self._is_begun():
            yield from self._plans(record, free)
        for offer in self.offers:
            yield "a commit", lambda offer=offer: self._commit(*offer)
        if self.head.state.step == total_steps(DATASET) and not self.ended:
            yield "END", self._end

    def _stays(self, i: int) -> bool:
        return self.state[i].phase is not MemberPhase.GONE

    def _plans(self, record: Generation, free: list[int]):
        inside = self._ranks(record)
        joiners = [i for i in free if i not in inside and i not in self.draining]
        stay = [i for i in inside if i not in self.draining]
        if (joiners or len(stay) < len(inside)) and stay:
            plan = record_of(record.number + 1, *sorted(stay + joiners), planned_from=record.number, head=self.head)
            yield "a plan", lambda: self._next(plan)

    def _break(self, concerned) -> None:
        self.broken.add(self.record.number)
        for i in concerned - self.dead:
            self.inbox[i].append(BrokenGeneration(number=self.record.number))

    def _next(self, record: Generation) -> None:
        self.record = self._write(record)

    def _commit(self, i: int, offer: OfferState) -> None:
        self.offers.remove((i, offer))
        is_current = offer.stamp in (self.record.number, self.record.planned_from) and (
            offer.state.step > self.head.state.step
        )
        manifest = None
        if is_current:
            bits = self.files[offer.file.name]
            assert bits[: len(self.head_bits)] == self.head_bits, "the head goes back (I3)"
            manifest = ManifestId(offer.file.name)
            self.head = HeadState(state=offer.state, manifest=manifest, skipped=offer.skipped, files=(offer.file,))
            self.head_bits = bits
        if i not in self.dead:
            self.inbox[i].append(OfferAnswered(offer=offer.offer, manifest=manifest))

    def _end(self) -> None:
        self.ended = True
        for i in set(self.state) - self.dead - self.gone:
            self.inbox[i].append(GroupEnded())
