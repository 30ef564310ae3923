"""A trainer of a simulated group: the real core; its script, stream and collectives are events of virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.groups.simulation.cluster_model import Charge, ClusterModel
from bench.groups.simulation.virtual_clock import VirtualClock
from master.api.messages.from_members import ReplicaMessage
from master.api.messages.generations import Generation
from trainer_sdk.group.core.control_words import StepWord, SyncEntry
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CloseGroup,
    ConnectGroup,
    ContributeWord,
    GatherStates,
    GroupEvent,
    LoadHead,
    ReceiveState,
    RefuseScript,
    ReportRequested,
    SendState,
    StepApplied,
    StepReduced,
    StreamOpened,
    TellMaster,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, MemberStep, check_member
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.transitions import give, handle_member


class Surroundings(Protocol):
    """What a member reaches: its master, and the collectives of its generations."""

    def tell_master(self, member: SimulatedMember, message: ReplicaMessage) -> None: ...
    def connect(self, member: SimulatedMember, record: Generation) -> None: ...
    def depart(self, member: SimulatedMember, number: int) -> None: ...
    def enter_sync(self, member: SimulatedMember, number: int, entry: SyncEntry, after_s: float) -> None: ...
    def transfer(self, member: SimulatedMember, work: ReceiveState | SendState) -> None: ...
    def contribute(self, member: SimulatedMember, number: int, word: StepWord) -> None: ...
    def completed(self, steps: int) -> None: ...


@dataclass
class SimulatedMember:
    core: MemberState
    model: ClusterModel
    clock: VirtualClock
    charge: Charge
    around: Surroundings
    report_after_s: float  # members report at different instants
    checks: bool = False

    def __post_init__(self) -> None:
        self.is_alive = True
        self._asked: object = None  # the work that is under way, so that it is begun once
        self._steps_begun = 0
        self.clock.after(self.report_after_s, self._report)

    def register(self) -> None:
        self.tell(StreamOpened())

    def tell(self, event: GroupEvent) -> float:
        """The core handles the event, and what it asks for is begun; CPU seconds of the decision."""
        if not self.is_alive:
            return 0.0
        steps: list[MemberStep] = []
        took_s = self.charge(lambda: steps.append(handle_member(self.core, event)))
        (step,) = steps
        self.core = step.state
        if self.checks:
            check_member(self.core)
        for effect in step.effects:
            match effect:
                case TellMaster(message=message):
                    self.around.tell_master(self, message)
                case ConnectGroup(record=record):
                    self.around.connect(self, record)
                case AbortGroup(number=number) | CloseGroup(number=number):
                    self.around.depart(self, number)
                case ContributeWord(number=number, word=word):
                    self.around.contribute(self, number, word)
                case RefuseScript(field=field, message=message):
                    raise AssertionError(f"the script is refused: {field}: {message}")
        self._go_on(took_s)
        return took_s

    def _go_on(self, after_s: float) -> None:
        """Begins the work that the state asks for, unless it is under way."""
        core = self.core
        asked = (core.phase, core.number, core.step, core.is_connected, core.is_step_given, core.transfer)
        if asked == self._asked:
            return
        self._asked = asked
        match core.phase:
            case MemberPhase.BOUNDARY if not core.is_step_given and not core.is_all_done:
                self._begin_step(after_s)
            case MemberPhase.COMPLETE:
                self.tell(StepApplied())
                self.around.completed(self.core.step)
            case MemberPhase.SYNC | MemberPhase.TRANSFER:
                self._join_sync(after_s)

    def _begin_step(self, after_s: float) -> None:
        """Without `next_work`, which would compute the records of each rank: no time of the model depends on them."""
        self.core = give(self.core)
        record, step, own = self.core.record, self.core.step, self.core.state
        assert record is not None
        assert own is not None
        self._asked = (self.core.phase, self.core.number, step, self.core.is_connected, True, None)
        self._steps_begun += 1
        is_first = own.generation != record.number
        holders = sum(not one.takes_state for one in record.members) if is_first else len(record.members)
        compute_s = self.model.compute_s * self.model.members / (holders or len(record.members))
        if is_first and holders and record.members[self.core.rank].takes_state:
            compute_s = self.model.compute_s * self.model.members / len(record.members) * self.model.forward_share
        self.clock.after(after_s + compute_s, lambda: self._reduce(record.number, step))

    def _reduce(self, number: int, step: int) -> None:
        if self.core.phase is MemberPhase.BOUNDARY and (self.core.number, self.core.step) == (number, step):
            self.tell(StepReduced())

    def _join_sync(self, after_s: float) -> None:
        works: list[object] = []
        took_s = after_s + self.charge(lambda: works.append(next_work(self.core)))
        match works[0]:
            case GatherStates(number=number, entry=entry):
                self.around.enter_sync(self, number, entry, took_s)
            case ReceiveState() | SendState() as work:
                self.around.transfer(self, work)
            case LoadHead():
                raise AssertionError("a group without checkpoints has no head to load")

    def take_words(self, number: int, words: tuple[StepWord, ...]) -> None:
        self.tell(WordsGathered(number=number, words=words))

    def _report(self) -> None:
        if not self.is_alive:
            return
        self.tell(
            ReportRequested(
                is_reducing=self.core.phase is MemberPhase.CONTRIBUTED,
                is_in_step=self.core.is_step_given,
                steps_begun=self._steps_begun,
                median_step_s=self.model.compute_s + self.model.reduce_s,
            )
        )
        self.clock.after(self.model.report_every_s, self._report)
