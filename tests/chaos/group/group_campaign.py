"""A chaos campaign on groups: members join, drain, die, stop and lose connections; master and etcd too; jobs in a row.

A resize counts when the joiner has done a step, or the leaver has ended by itself; a fault when it was seen to land and
a step was completed after it.  All that is random comes from one seed; what the machine makes of it is not repeatable.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.etcd_members import EtcdCluster
from master.api.master_status import JobStatus
from tests.chaos.group.group_oracle import GroupHead, GroupOracle, read_diaries, read_group_head
from tests.chaos.group.member_pool import MemberPool, MemberProcess, running_pool
from tests.chaos.head_watch import HeadWatch
from tests.harness.etcd_faults import EtcdFaultInjector
from tests.harness.master_process import MasterProcess, running
from tests.harness.master_status import try_status
from tests.harness.process_state import has_died, has_stopped
from tests.harness.waiting import wait_for_async

START_BUDGET_S: Final = 90.0
STALL_S: Final = 90.0  # without a step at anybody: a problem
END_BUDGET_S: Final = 240.0
MOST_MEMBERS: Final = 5
MEAN_INTERVAL_S: Final = 0.5  # between two acts


class GroupFault(StrEnum):
    KILL = "kill a member"
    KILL_TWO = "kill two members at once"
    KILL_ALL = "kill all members"
    STOP_SHORT = "stop a member for a moment"
    STOP_LONG = "stop a member until it is left behind"
    SEVER = "sever a member's connections"
    MASTER_KILL = "kill the master"
    MASTER_STOP = "stop the master past its term"
    ETCD_KILL = "kill etcd"
    ETCD_STOP = "stop etcd"


WEIGHTS: Final = {
    GroupFault.KILL: 30,
    GroupFault.KILL_TWO: 8,
    GroupFault.KILL_ALL: 1,
    GroupFault.STOP_SHORT: 12,
    GroupFault.STOP_LONG: 5,
    GroupFault.SEVER: 20,
    GroupFault.MASTER_KILL: 10,
    GroupFault.MASTER_STOP: 2,
    GroupFault.ETCD_KILL: 6,
    GroupFault.ETCD_STOP: 3,
}
OF_CONTROL: Final = (GroupFault.MASTER_KILL, GroupFault.MASTER_STOP, GroupFault.ETCD_KILL, GroupFault.ETCD_STOP)


@dataclass(slots=True, kw_only=True)
class GroupReport:
    """What a campaign found; `problems` empty: every promise held."""

    problems: list[str] = field(default_factory=list)
    jobs: int = 0
    joins: int = 0
    drains: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    recoveries_s: dict[str, list[float]] = field(default_factory=dict)  # by fault: to the next step of anybody
    pauses_s: list[float] = field(default_factory=list)  # of changes, planned or not, at a member that stayed
    steps: int = 0
    redone: int = 0  # steps that were done in more than one generation
    heads: int = 0
    heads_missed: int = 0
    quarantined: int = 0

    @property
    def resizes(self) -> int:
        return self.joins + self.drains


class GroupCampaign:
    """Runs jobs until there are enough resizes and faults, or the time is over."""

    def __init__(
        self, folder: Path, etcd: EtcdCluster, *, resizes: int, faults: int, until_s: float, seed: int,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._folder, self._etcd = folder, etcd
        self._resizes, self._faults, self._until_s, self._say = resizes, faults, until_s, say
        self._rng = random.Random(seed)
        self._oracle = GroupOracle()
        self._begun_resizes = self._begun_faults = 0
        self.report = GroupReport()

    @property
    def is_over(self) -> bool:
        is_done = self.report.resizes >= self._resizes and self.report.faults.total() >= self._faults
        return is_done or time.monotonic() > self._until_s

    async def run(self) -> GroupReport:
        while not self.is_over and not self.report.problems:
            self.report.jobs += 1
            job = f"group-{self.report.jobs}"
            folder = self._folder / job
            for name in ("sockets", "checkpoints", "diaries", "logs"):
                (folder / name).mkdir(parents=True, mode=0o700)
            (folder / "slow").touch()
            await self._run_job(job, folder)
        return self.report

    async def _run_job(self, job: str, folder: Path) -> None:
        settings = {"EDL_JOB": job, "EDL_GROUP": "1", "EDL_ETCD_ENDPOINTS": ",".join(self._etcd.endpoints)}
        settings |= {"EDL_RECONNECT_S": "3", "EDL_CHECKPOINT_EVERY_S": str(self._rng.choice((0.5, 1.0, 3.0)))}
        watch: HeadWatch = HeadWatch(str(folder / "checkpoints"), read=read_group_head)
        async with running(MasterProcess(folder, **settings)) as (master,), watch.following():
            async with running_pool(folder, master.address, job) as pool:
                scene = _Scene(job, folder, master, pool, EtcdFaultInjector(self._etcd, self._rng), self._rng)
                try:
                    await self._disturb(scene)
                except TimeoutError as error:
                    self.report.problems.append(f"{job}: {error}: {await scene.status()}")
                await scene.settle()
            self._judge(scene, watch)

    async def _disturb(self, scene: _Scene) -> None:
        """Until the job has ended; it hurries to its end once this campaign has enough."""
        for _ in range(self._rng.randint(1, 3)):
            await scene.join()
        await wait_for_async("the first step", scene.has_stepped, budget_s=START_BUDGET_S)
        while not scene.has_ended:
            if self._is_enough(scene) or time.monotonic() > self._until_s:
                (scene.folder / "slow").unlink(missing_ok=True)
                await asyncio.sleep(0.5)
            else:
                await asyncio.sleep(self._rng.expovariate(1.0 / MEAN_INTERVAL_S))
                await self._act(scene)
            scene.check_progress()
        await wait_for_async("all members end", lambda: not scene.pool.running, budget_s=END_BUDGET_S)

    def _is_enough(self, scene: _Scene) -> bool:
        resizes, faults = self.report.resizes + scene.begun_resizes, self.report.faults.total() + len(scene.landed)
        return resizes >= self._resizes * 1.05 and faults >= self._faults * 1.05

    async def _act(self, scene: _Scene) -> None:
        wants_resize = self._resizes - self.report.resizes - scene.begun_resizes
        wants_fault = self._faults - self.report.faults.total() - len(scene.landed)
        if self._rng.random() * max(1, wants_resize + wants_fault) < wants_resize:
            await scene.resize()
            return
        for _ in range(2 if self._rng.random() < 0.15 else 1):
            (fault,) = self._rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))
            scene.begin(fault)

    def _judge(self, scene: _Scene, watch: HeadWatch) -> None:
        report, job = self.report, scene.job
        diaries = read_diaries(scene.folder / "diaries")
        found = diaries.check_agreement() + scene.check_exits()
        heads: list[GroupHead] = watch.heads
        if not report.problems:
            found += self._oracle.check_heads(heads)
            found += [] if any(scene.folder.glob("hooked-*")) else ["no trainer ran the final hook"]
        report.problems += [f"{job}: {problem}" for problem in found]
        writers = diaries.writers()
        report.joins += sum(one.ordinal in writers for one in scene.pool.members)
        report.drains += sum(one.is_leaving and one.exit_code == 0 for one in scene.pool.members)
        for fault, at_s in scene.landed:
            if (took_s := diaries.pause_after(at_s)) is not None:
                report.faults[fault] += 1
                report.recoveries_s.setdefault(fault, []).append(took_s)
        report.pauses_s += diaries.pauses()
        done = {(generation, step) for _, generation, step, _, _ in diaries.lines}
        report.steps += len({step for _, step in done})
        report.redone += len(done) - len({step for _, step in done})
        report.heads += len(heads)
        report.heads_missed += watch.missed
        report.quarantined += len(heads[-1].loaded.skipped) if heads else 0
        self._say(
            f"{job}: {len(scene.pool.members)} members, {len(scene.landed)} faults, {len(heads)} checkpoints, "
            f"{len(found)} problems; so far {report.resizes} resizes, {report.faults.total()} faults"
        )


class _Scene:
    """One job: its processes, and what has been done to them."""

    def __init__(
        self,
        job: str,
        folder: Path,
        master: MasterProcess,
        pool: MemberPool,
        etcd: EtcdFaultInjector,
        rng: random.Random,
    ) -> None:
        self.job, self.folder, self.pool = job, folder, pool
        self._master, self._etcd, self._rng = master, etcd, rng
        self.landed: list[tuple[GroupFault, float]] = []
        self.begun_resizes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = asyncio.Lock()  # one fault of master or etcd at a time
        self._sizes: dict[Path, int] = {}
        self._progress_s = time.monotonic()

    # ---- what is seen -----------------------------------------------------------------------------------------------

    async def status(self) -> JobStatus | None:
        return await try_status(self._master.address, self.job)

    @property
    def has_ended(self) -> bool:
        """True once a member was told END; a master that is down cannot be asked."""
        return any(one.exit_code == 0 and not one.is_leaving for one in self.pool.members)

    def has_stepped(self) -> bool:
        return any(file.stat().st_size for file in (self.folder / "diaries").iterdir())

    def check_progress(self) -> None:
        """Raises TimeoutError when nobody has completed a step for STALL_S."""
        sizes = {file: file.stat().st_size for file in (self.folder / "diaries").iterdir()}
        if sizes != self._sizes:
            self._sizes, self._progress_s = sizes, time.monotonic()
        if time.monotonic() - self._progress_s > STALL_S:
            raise TimeoutError(f"no step for {STALL_S:g} s")

    def check_exits(self) -> list[str]:
        """Nobody but us ends processes."""
        return [
            f"member {one.ordinal} ended with {one.exit_code}: {self._last_words(one)}"
            for one in self.pool.members
            if one.exit_code != 0 and not self._is_our_deed(one)
        ]

    def _is_our_deed(self, member: MemberProcess) -> bool:
        """True for one that we killed, and for one that was drained before its script had opened a session."""
        if member.is_leaving and member.exit_code == -signal.SIGTERM:
            return not (self.folder / "diaries" / str(member.ordinal)).exists()
        return member.was_killed and member.exit_code == -signal.SIGKILL

    def _last_words(self, member: MemberProcess) -> str:
        log = self.folder / "logs" / f"{member.ordinal}.log"
        return " | ".join(log.read_text().splitlines()[-4:]) if log.exists() else "no log"

    # ---- what is done -----------------------------------------------------------------------------------------------

    async def join(self) -> None:
        await self.pool.add()
        self.begun_resizes += 1

    async def resize(self) -> None:
        present = self.pool.present
        if len(present) < 2 or (len(present) < MOST_MEMBERS and self._rng.random() < 0.5):
            await self.join()
        elif leavers := [one for one in present if not one.is_held]:
            leaver = self._rng.choice(leavers)
            leaver.is_leaving = True
            leaver.signal(signal.SIGTERM)
            self.begun_resizes += 1

    def begin(self, fault: GroupFault) -> None:
        """Injects the fault beside what else goes on."""
        task = asyncio.create_task(self._inject(fault))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """All faults that were begun are over."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _inject(self, fault: GroupFault) -> None:
        if fault in OF_CONTROL:
            async with self._control:
                await self._inject_control(fault)
            return
        victims = [one for one in self.pool.running if not one.is_held and not one.was_killed]
        self._rng.shuffle(victims)
        match fault:
            case GroupFault.KILL | GroupFault.KILL_TWO | GroupFault.KILL_ALL:
                count = {GroupFault.KILL: 1, GroupFault.KILL_TWO: 2}.get(fault, len(victims))
                await self._kill(fault, victims[:count])
            case GroupFault.STOP_SHORT | GroupFault.STOP_LONG:
                most_s = 1.0 if fault is GroupFault.STOP_SHORT else 8.0
                if victims:
                    await self._stop(fault, victims[0], self._rng.uniform(most_s / 4, most_s))
            case GroupFault.SEVER:
                if victims:
                    victims[0].signal(signal.SIGUSR1)
                    self._note(fault)

    async def _kill(self, fault: GroupFault, victims: list[MemberProcess]) -> None:
        if not victims:
            return
        for victim in victims:
            victim.was_killed = True
            victim.signal(signal.SIGKILL)
        if all(await asyncio.gather(*(has_died(victim.pid) for victim in victims))):
            self._note(fault)
        while len(self.pool.present) < 2 and not self.has_ended:
            await self.join()

    async def _stop(self, fault: GroupFault, victim: MemberProcess, for_s: float) -> None:
        victim.is_held = True
        victim.signal(signal.SIGSTOP)
        try:
            if await has_stopped(victim.pid):
                self._note(fault)
            await asyncio.sleep(for_s)
        finally:
            victim.signal(signal.SIGCONT)
            victim.is_held = False

    async def _inject_control(self, fault: GroupFault) -> None:
        match fault:
            case GroupFault.MASTER_KILL:
                await self._master.kill()
                self._note(fault)
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                await self._master.start()
            case GroupFault.MASTER_STOP:
                self._master.signal(signal.SIGSTOP)
                self._note(fault)
                await asyncio.sleep(self._rng.uniform(2.0, 12.0))
                self._master.signal(signal.SIGCONT)
            case GroupFault.ETCD_KILL:
                await self._note_if(fault, self._etcd.kill)
            case GroupFault.ETCD_STOP:
                await self._note_if(fault, lambda: self._etcd.stop(self._rng.uniform(0.5, 6.0)))

    async def _note_if(self, fault: GroupFault, inject: Callable[[], Awaitable[str]]) -> None:
        at_s = time.monotonic()
        if await inject():
            self.landed.append((fault, at_s))

    def _note(self, fault: GroupFault) -> None:
        self.landed.append((fault, time.monotonic()))
