"""The master of the operator's one job, in memory: what it says of servers, and what it does when told their number."""

from autoscaler.domain import Role
from autoscaler.jobs.progress import JobProgress, TrainerEntry, WhyNoAnswer
from master.api.master_status import JobPhase
from master.api.messages.to_members import Refused
from master.api.servers_answer import ServersAnswer

HERE = TrainerEntry(name="digits-trainer-0", steps=0)  # it takes part, and has reported nothing yet


def progress(*, wanted=2, buckets=(), phase=JobPhase.TRAINING, **more):
    said = {"phase": phase, "term": 1, "servers_wanted": wanted, "buckets": buckets, "ledger": (HERE,)}
    return JobProgress(**said | more)


class StandInMaster:
    """The master of the one job, in memory.  It moves as many buckets as `moves` with each question."""

    def __init__(self, term, *, count, buckets=12, moves=12, refuses=""):
        self.count, self.moves, self.refuses = count, moves, refuses
        self.buckets = {0: buckets}
        self.told = []
        self.is_silent = self.is_refusing = False
        self.load = 0.0  # seconds of one server for each second that a trainer computes
        self.moving = 0
        self.term = term

    async def poll(self, job, masters, **_):
        if self.is_silent or not masters:
            return WhyNoAnswer.SILENT
        if self.is_refusing:
            return WhyNoAnswer.NOT_LEADING
        self._move()
        waits = self.load / max(1, len(self.buckets))
        said = progress(
            wanted=self.count,
            buckets=tuple(sorted(self.buckets.items())),
            servers=len(self.buckets),
            lineage=1,
            moving=self.moving,
            training=len(self.term.bench.pods(Role.TRAINER)),
            waiting_share=waits / (1 + waits),
        )
        return masters[0]["metadata"]["name"], said

    async def set_servers(self, job, leader, count):
        if self.is_silent:
            return None
        self.told.append(count)
        if self.refuses:
            refused = Refused(field="count", message=self.refuses)
            return ServersAnswer(count=self.count, least=1, most=4, refused=refused)
        self.count = count
        return ServersAnswer(count=count, least=1, most=4)

    def _move(self):
        """Away from those that are not wanted, and to those that have nothing."""
        there = {int(name.rpartition("-")[2]) for name in self.term.bench.pods(Role.SERVER)}
        for ordinal in there:
            if ordinal < self.count and not self.buckets.get(ordinal):
                self.buckets[ordinal] = 1
        for ordinal in [ordinal for ordinal in self.buckets if ordinal >= self.count]:
            self.buckets[ordinal] = max(0, self.buckets[ordinal] - self.moves)
        self.buckets = {ordinal: held for ordinal, held in self.buckets.items() if ordinal in there}
