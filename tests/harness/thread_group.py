"""A group whose members are threads: an exact all-reduce, and a plan of joins, leaves, aborts and late members.

It has the methods of `trainer_sdk.group.group_steps.GroupSteps` and of a session that a framework's layer uses, so what
stands on those can be tried without a master; each member works with objects of its own.
"""

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from master.api.group_shares import shares, step_positions, steps_per_epoch, total_steps
from master.api.identities import DatasetSpec, Incarnation, Lineage, MemberName
from master.api.messages.generations import Generation, GroupMember, HeadState, StateId
from master.api.positions import EMPTY
from trainer_sdk.errors import StepAborted
from trainer_sdk.group.port import StepShare
from trainer_sdk.record_order import RecordOrder

WAIT_S = 60.0


class ThreadSums:
    """All-reduce and gather of threads, in rank order; `abort`: all that wait, and all that come, raise StepAborted."""

    def __init__(self, size, *, allowed=None):
        """`allowed`: the group breaks after so many operations."""
        self.size = size
        self.barrier = threading.Barrier(size)
        self.given = [None] * size
        self.sizes = [[] for _ in range(size)]
        self.allowed = allowed

    def member(self, rank, widen=lambda array, dtype: array.copy(), narrow=lambda array, dtype: array):
        """The all-reduce of a rank.  `widen` and `narrow` carry dtypes that NumPy lacks to one that it can add."""

        def all_reduce(array, *, dtype=""):
            parts = self.exchange(rank, widen(array, dtype))
            self.sizes[rank].append(array.size)
            array[...] = narrow(sum(parts[1:], parts[0].copy()), dtype)

        return all_reduce

    def exchange(self, rank, value):
        """What all ranks gave, by rank."""
        if self.allowed is not None and len(self.sizes[rank]) >= self.allowed:
            self.abort()
        self.given[rank] = value
        self._meet()
        values = list(self.given)
        self._meet()
        return values

    def abort(self):
        self.barrier.abort()

    def _meet(self):
        try:
            self.barrier.wait(WAIT_S)
        except threading.BrokenBarrierError:
            raise StepAborted("the group broke") from None


@dataclass
class Attempt:
    """One try at a step: who takes part, and what goes wrong."""

    step: int
    size: int
    is_redo: bool = False
    is_aborted: bool = False
    late: int | None = None  # this rank does not see the step complete, and takes the others' state
    needs_state: set = field(default_factory=set)
    state: object = None
    is_captured: threading.Event = field(default_factory=threading.Event)


class ThreadGroup:
    """The plan and the meeting places.  Steps and ranks count from 0.

    `sizes`: number of members from a step on, {0: 2, 5: 3}.  `aborts`: steps whose first try breaks, by the number of
    all-reduces before it does, at the latest in the flag collective.  `late`: steps that complete at all members
    but this rank.  `broken_gathers`: steps after which a gather fails.  `has_samples`: all ranks read a record of the
    step before in each step.
    """

    def __init__(
        self,
        dataset: DatasetSpec,
        sizes,
        *,
        aborts=None,
        late=None,
        broken_gathers=(),
        quarantine=EMPTY,
        has_samples=False,
    ):
        self.dataset, self.quarantine, self.has_samples = dataset, quarantine, has_samples
        self.broken_gathers = set(broken_gathers)
        self.attempts = []
        size, is_late = 0, None
        for step in range(total_steps(dataset)):
            before, size = size, sizes.get(step, size)
            joiners = set(range(before, size)) if step else set()
            if aborts and step in aborts:
                self.attempts.append(Attempt(step, size, is_aborted=True, needs_state=joiners | _one(is_late)))
                joiners, is_late = set(), None
            redo = bool(aborts and step in aborts)
            found = Attempt(step, size, is_redo=redo, late=(late or {}).get(step), needs_state=joiners | _one(is_late))
            self.attempts.append(found)
            is_late = found.late
        self.sums = [
            ThreadSums(one.size, allowed=(aborts or {})[one.step] if one.is_aborted else None) for one in self.attempts
        ]
        self.gathers = [ThreadSums(one.size) for one in self.attempts]
        self.most = max(one.size for one in self.attempts)

    def record(self, size):
        members = tuple(
            GroupMember(name=MemberName(f"t-{n}"), incarnation=Incarnation(f"i{n}"), address="unix:/s", share=1)
            for n in range(size)
        )
        head = HeadState(state=StateId(lineage=Lineage(1), generation=0, step=0))
        return Generation(number=1, lineage=Lineage(1), members=members, head=head, quarantine=self.quarantine)

    def share(self, step, rank, size):
        """As `trainer_sdk.group.core.steps` gives it."""
        record, positions = self.record(size), step_positions(self.dataset, step)
        mine = shares(record, positions)[rank]
        return StepShare(
            step=step,
            epoch=step // steps_per_epoch(self.dataset),
            positions=mine,
            records=len(positions - self.quarantine),
            rank=rank,
            size=size,
            generation=1,
            spare=EMPTY if mine else (positions - self.quarantine).first(2),
            sample=step_positions(self.dataset, step - 1).first(1) if step and self.has_samples else EMPTY,
        )


def _one(rank):
    return set() if rank is None else {rank}


class ThreadSteps:
    """The steps of one rank; it joins when the group first has so many members, and leaves when it has fewer again."""

    def __init__(self, group: ThreadGroup, spec: DatasetSpec, rank: int, replica, member):
        self.group, self.spec, self.rank, self.replica = group, spec, rank, replica
        self._number = -1  # of the attempt in hand
        self._reduce = member
        self._is_broken = self.has_left = self.has_ended = self.is_stopping = False
        self._order = RecordOrder(spec)
        self._at_close = []
        self.step = self.size = self.measured_steps = 0
        self.given = []  # the shares
        self.reported = []  # metrics
        self.samples = []  # what was read of the records that all read

    @property
    def _attempt(self):
        return self.group.attempts[self._number]

    def next_step(self):
        if self.has_ended:
            return None
        is_member = self._number >= 0
        while True:
            self._number += 1
            if self._number == len(self.group.attempts):
                self.step, self.has_ended = total_steps(self.spec), True
                return None
            if self.rank < self._attempt.size:
                break
            if is_member:
                self.has_left = self.has_ended = True
                return None
        now = self._attempt
        if self.rank == 0 and now.needs_state:
            now.state = self.replica.capture()
            now.is_captured.set()
        if self.rank in now.needs_state:
            assert now.is_captured.wait(WAIT_S)
            self.replica.restore(now.state)
        self.step, self.size, self._is_broken = now.step, now.size, False
        share = replace(self.group.share(now.step, self.rank, now.size), is_redo=now.is_redo)
        self.given.append(share)
        return share

    def all_reduce(self, array, *, dtype=""):
        self._reduce(self.group.sums[self._number], self.rank)(array, dtype=dtype)

    def computed(self, *, is_known=True):
        self.measured_steps += is_known

    @property
    def is_step_dropped(self):
        return False

    def end_step(self, *, sample=""):
        if sample:
            self.samples.append(sample)
        if self._attempt.is_aborted:
            return False
        self.group.sums[self._number].exchange(self.rank, None)
        return self._attempt.late != self.rank

    complete_step = end_step

    def report(self, metrics):
        self.reported.append(dict(metrics))

    def loading(self):
        return nullcontext()

    def gather(self, data):
        if self._attempt.step in self.group.broken_gathers:
            raise StepAborted("the group broke")
        return [bytes(one) for one in self.group.gathers[self._number].exchange(self.rank, data)]

    def records(self, positions):
        return self._order.records(positions)

    def expected_share(self, step):
        inside = self.size and 0 <= step < total_steps(self.spec)
        return self.group.share(step, self.rank, self.size) if inside else None

    def at_close(self, callback):
        self._at_close.append(callback)

    def close(self):
        for callback in reversed(self._at_close):
            callback()


class ThreadSession:
    """What `replicate` and `loader` need of a session."""

    def __init__(self, group: ThreadGroup, rank: int, member=ThreadSums.member):
        self._group, self._rank, self._member = group, rank, member
        self.replica = self.steps = None

    def replicate(self, replica):
        self.replica = replica

    def group_steps(self, name, *, size, epochs, global_batch, seed):
        spec = DatasetSpec(name=name, size=size, epochs=epochs, batch_size=global_batch, seed=seed)
        assert replace(spec, name=self._group.dataset.name) == self._group.dataset
        self.steps = ThreadSteps(self._group, spec, self._rank, self.replica, self._member)
        return self.steps

    def close(self):
        if self.steps is not None:
            self.steps.close()


def run_threads(count, function):
    """The results of `function(rank)`, one thread each; the first failure is raised once all have ended."""
    results, failures = [None] * count, []

    def run(rank):
        try:
            results[rank] = function(rank)
        except BaseException as error:  # noqa: BLE001  raised where the ranks were started
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank-{rank}") for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
