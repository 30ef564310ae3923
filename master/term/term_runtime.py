"""The runtime of one term: the writer task that owns the state, and the effects that it carries out.

Everything that happens (a message, a broken stream, an answer of the store, a deadline) becomes an event in one
queue.  One task takes the events in turns, calls `job.handle`, and performs the effects in their order.  The core
itself orders what must be durable before it is answered: the answer is an effect of the `Persisted` event.  So there
is no lock.

A turn takes all events that have gathered, and each stream sends all that has gathered for it, so the cost of an
event falls under load.  Before each turn and each envelope the term checks that it may still act.

Not here: gRPC (`process.grpc_server`), the checkpoint folder (`folder_work`), who leads (`leadership.election`), one
term after another (`process.leader_terms`), decisions (`job`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Protocol, assert_never

from master import job
from master.api.errors import MessageError
from master.api.identities import HistoryId, Term
from master.api.master_status import LONGEST_AGE_S, LONGEST_NAME, JobStatus
from master.api.messages.from_members import MemberMessage, RegisterServer, RegisterTrainer
from master.api.messages.generations import RegisterReplica
from master.api.servers_answer import ServersAnswer
from master.durable.checkpoint_folder import CheckpointFolder
from master.errors import HeadDamagedError, TermEndedError
from master.job.domain.durable_records import SECOND, Durable, Instant, MemberKey, SwapHead
from master.job.domain.effects import (
    AnswerServers,
    CloseStream,
    CoreEffect,
    FallBack,
    FindAdoptable,
    Persist,
    Retain,
    Send,
    StepDown,
    WriteManifest,
)
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import (
    BackoffLimitSet,
    ComparisonRequested,
    CoreEvent,
    HeadNamed,
    MessageReceived,
    Persisted,
    PersistRefused,
    ServersRequested,
    StreamBroken,
)
from master.leadership.election import HeldTerm
from master.store.store_port import StateStore
from master.term.counters import CommitClock, Counters, PromotionLog
from master.term.event_queue import EventQueue
from master.term.folder_work import FolderWork
from master.term.member_streams import MemberStream, MemberStreams
from master.term.store_writer import StoreWriter

log: Final = logging.getLogger(__name__)

MAX_WAITING_EVENTS: Final = 8192
MAX_EVENTS_PER_TURN: Final = 512  # a few ms; then streams get their turn
DEADLINE_GRAIN_NS: Final = 5_000_000  # deadlines are seconds: 5 ms late is on time
DEADLINE_REST: Final = 10  # a look at all deadlines is followed by so many times as long without one
STOOD_STILL_NS: Final = 500_000_000  # so late a deadline is looked at by a process that had no time
READING_NS: Final = 100_000_000  # and for so long it reads what has come meanwhile
IDLE: Final = "idle"  # of a commit, in both cores: none is under way
NEVER: Final = Instant(2**63 - 1)
CLOCK_CHECK_S: Final = 1.0  # a term with nothing to do still looks this often whether it may act


class DecisionCore(Protocol):
    """The pure core that a term runs: `master.job`, or `master.group` for a group (ADR 0232).  States are its own."""

    def initial(self, config: JobConfig, durable: Durable, term: Term, now: Instant) -> Any: ...

    def handle(self, state: Any, event: Any, now: Instant) -> Any: ...

    def deadlines(self, state: Any) -> tuple[tuple[Instant, Any], ...]: ...

    def check_invariants(self, state: Any) -> None: ...

    def status(self, state: Any, now: Instant) -> JobStatus: ...


class TermRuntime:
    """Only owner of this job's state in this process, from `run` until that raises."""

    def __init__(
        self,
        *,
        config: JobConfig,
        durable: Durable,
        term: Term,
        store: StateStore,
        folder: CheckpointFolder,
        held_term: HeldTerm,
        counts: Counters,
        history: HistoryId | None = None,
        fell_back: str = "",
        checks_invariants: bool = False,
        core: DecisionCore = job,
    ) -> None:
        self._core = core
        self._fell_back = fell_back  # to which checkpoint, and why; empty: to none
        self._held_term = held_term
        self._counts = counts
        self._promotions = PromotionLog(counts)
        self._commits = CommitClock(counts)
        self._checks_invariants = checks_invariants
        self._inbox = EventQueue(limit=MAX_WAITING_EVENTS)
        self._persistence = StoreWriter(store, term, self._handle_outcome)
        self._streams = MemberStreams()
        self.is_over = False  # no stream is to be opened any more: it would never be ended
        self._folder_work = FolderWork(folder, history, self._inbox.add)
        step = core.initial(config, durable, term, _now())
        self._state = step.state
        self._first_effects = step.effects
        self._head = durable.head
        self._pending_requests: dict[int, asyncio.Future[ServersAnswer]] = {}  # SetServers calls, by request number
        self._requests = itertools.count()
        self._is_changed = True  # since the deadlines were looked at
        self._next_deadline_check = Instant(0)  # not before then again
        self._next_deadline = NEVER
        self._has_waited = False  # for reports, with deadlines that are over

    # ---- the writer -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serves the term.  Raises TermEndedError when it is over; afterwards nothing leaves on any stream."""
        writes = asyncio.create_task(self._persistence.run())
        try:
            self._folder_work.begin(self._head)
            self._perform(self._first_effects)
            while True:
                await self._inbox.wait(self._wait_s())
                if not self._held_term.may_act():
                    await self._held_term.confirm()
                if writes.done():
                    writes.result()
                self._folder_work.check()
                self._take_turn()
                await asyncio.sleep(0)  # let the streams send
        except asyncio.CancelledError:  # asked to end while it leads; a term that another one follows writes no more
            await self._folder_work.finish_head()
            raise
        finally:
            self.is_over = True
            for stream in self._streams:
                stream.abandon("this master's term is over")
            for stop in self._pending_requests.values():
                if not stop.done():
                    stop.set_exception(TermEndedError("the term ended before this number of servers was durable"))
            await _cancel({writes, *self._folder_work.tasks})

    def _take_turn(self) -> None:
        now = _now()
        for event in self._inbox.take(MAX_EVENTS_PER_TURN):
            self._handle(event, now)
        if now >= self._next_deadline_check:
            self._check_deadlines(now)

    def _must_look_again(self, due_at: Instant, now: Instant) -> bool:
        """True, once, for a deadline that is long over: this process stood still, and reports may wait to be read."""
        self._has_waited = not self._has_waited and now - due_at > STOOD_STILL_NS
        if self._has_waited:
            self._next_deadline_check = Instant(now + READING_NS)
        return self._has_waited

    def _check_deadlines(self, now: Instant) -> None:
        began = _now()
        pending = tuple(self._core.deadlines(self._state))
        if due := [(at, deadline) for at, deadline in pending if at <= now]:
            if self._must_look_again(min(at for at, _ in due), now):
                return
            for _, deadline in due:
                self._handle(deadline, now)
            pending = tuple(self._core.deadlines(self._state))
        self._is_changed = False
        self._next_deadline = min((at for at, _ in pending), default=NEVER)
        rest_ns = max(DEADLINE_GRAIN_NS, DEADLINE_REST * (_now() - began))
        self._next_deadline_check = Instant(now + rest_ns)

    def _handle(self, event: CoreEvent, now: Instant) -> None:
        step = self._core.handle(self._state, event, now)
        if self._core is job:
            self._promotions.observe(self._state, event, now)
        if (commit := step.state.commit) is not self._state.commit:
            self._commits.observe(is_under_way=commit.phase != IDLE, now=now)
        self._state = step.state
        self._is_changed = True
        self._counts.events += 1
        if self._checks_invariants:
            self._core.check_invariants(self._state)
        self._perform(step.effects)

    def _wait_s(self) -> float:
        """Seconds until deadlines are looked at: not at every turn, since that costs with the number of members."""
        wake = self._next_deadline_check if self._is_changed else max(self._next_deadline_check, self._next_deadline)
        return min(CLOCK_CHECK_S, (wake - _now()) / SECOND)

    # ---- effects ----------------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[CoreEffect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case Persist():
                    self._persistence.add(effect)
                case WriteManifest() | FindAdoptable() | Retain():
                    self._folder_work.start(effect)
                case CloseStream():
                    self._close_stream(effect)
                case AnswerServers():
                    self._answer_servers(effect)
                case StepDown() | FallBack():
                    ended = HeadDamagedError if isinstance(effect, FallBack) else TermEndedError
                    raise ended(effect.reason)
                case _:
                    assert_never(effect)

    def _send(self, effect: Send) -> None:
        stream = self._streams.try_find(effect.to)
        if stream is not None:
            stream.send(effect.message)
            self._counts.sent += 1

    def _close_stream(self, effect: CloseStream) -> None:
        stream = self._streams.try_find(effect.member)
        if stream is not None:
            stream.finish(effect.reason)

    def _answer_servers(self, effect: AnswerServers) -> None:
        answer = effect.answer
        if effect.is_news:
            replaced = f", in place of {answer.replaces}" if answer.replaces else ""
            log.info("%d servers are wanted%s", answer.count, replaced)
        for request in effect.requests:
            if (pending := self._pending_requests.get(request)) is not None and not pending.done():
                pending.set_result(answer)

    def _handle_outcome(self, outcome: Persisted | PersistRefused) -> None:
        write = outcome.write
        if isinstance(outcome, PersistRefused) or not isinstance(write, SwapHead):
            self._inbox.add(outcome)
            return
        self._commits.count(_now())
        if write.generation is None:
            self._folder_work.finish_commit(write.manifest, then=outcome)
        else:  # a group's records name the new head from now on: its members change while the folder hangs (ADR 0307)
            self._inbox.add(outcome)
            self._folder_work.finish_commit(write.manifest, then=HeadNamed(manifest=write.manifest))

    # ---- gRPC side --------------------------------------------------------------------------------------------------

    def open(self, stream: MemberStream) -> None:
        """The term knows the stream and ends it with itself."""
        self._streams.open(stream)

    async def receive(self, stream: MemberStream, messages: Iterable[MemberMessage]) -> None:
        """Queues a member's messages in order; waits while the writer is behind.  Raises MessageError unless it
        registered.
        """
        await self._inbox.extend(self._events_of(stream, messages))

    def _events_of(self, stream: MemberStream, messages: Iterable[MemberMessage]) -> list[CoreEvent]:
        events: list[CoreEvent] = []
        sender = stream.member
        for message in messages:
            if isinstance(message, RegisterTrainer | RegisterReplica | RegisterServer):
                sender = MemberKey(name=message.name, incarnation=message.incarnation)
                replaced = self._streams.register(stream, sender)
                if replaced is not None:
                    events.append(StreamBroken(member=replaced))
            if sender is None:
                raise MessageError("messages[0]", "comes before a registration: members register first on each stream")
            events.append(MessageReceived(sender=sender, message=message))
        self._counts.received += len(events)
        return events

    def close(self, stream: MemberStream) -> None:
        """The stream has ended."""
        member = self._streams.close(stream)
        if member is not None:
            self._inbox.add(StreamBroken(member=member))

    def may_answer(self) -> bool:
        """True if a message may leave on a stream now; asked right before each envelope."""
        return self._held_term.may_act()

    async def set_servers(self, count: int) -> ServersAnswer:
        """The answer for the cluster side.  Raises TermEndedError if the term ends before the number is durable."""
        request = next(self._requests)
        pending: asyncio.Future[ServersAnswer] = asyncio.get_running_loop().create_future()
        self._pending_requests[request] = pending
        try:
            await self._inbox.extend((ServersRequested(request=request, count=count),))
            return await pending
        finally:
            del self._pending_requests[request]

    def set_backoff_limit(self, limit: int) -> None:
        """Sets the job's backoffLimit, whose edits reach a running master with each poll of its status."""
        if limit != self._state.config.backoff_limit:
            self._inbox.add(BackoffLimitSet(limit=limit))

    def compare_replicas(self, request: str) -> None:
        """Has a group compare its replicas, once for each name of a request; polls may repeat it."""
        self._inbox.add(ComparisonRequested(request=request[:LONGEST_NAME]))

    # ---- status -----------------------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """The job as of now.  Any thread may call it: the state is one frozen value."""
        state = self._state
        status = self._core.status(state, _now())
        store_outage = self._persistence.problem or self._held_term.store_problem
        store_problem = f"training continues, checkpoints wait: {store_outage}" if store_outage else ""
        checkpoint_problem = self._folder_work.head_problem or status.checkpoint_problem
        age_s = status.checkpoint_age_s
        if age_s is None and state.head is not None and state.head.created_at_s > 0:  # an earlier term committed it
            age_s = min(max(0.0, time.time() - state.head.created_at_s), LONGEST_AGE_S)
        return replace(
            status,
            store_problem=store_problem,
            checkpoint_problem=checkpoint_problem,
            fell_back=self._fell_back,
            checkpoint_age_s=age_s,
        )

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    @property
    def waiting_write_count(self) -> int:
        return len(self._persistence)


def _now() -> Instant:
    return Instant(time.monotonic_ns())


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
