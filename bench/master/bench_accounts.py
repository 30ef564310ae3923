"""Benchmark of etcd users, one for each of 1,000 jobs: creation time, and latency of a running master (ADR 0165).

One member as the chart runs it, at two costs of a password's hash.  A master commits all the time while the operator's
door makes the users one after another and drops some of them again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import statistics
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from autoscaler.etcd_server.etcd_members import EtcdCluster, start_etcd
from autoscaler.etcd_server.finder import find_etcd
from bench.reporting.result_rows import Row, print_rows
from master.store.etcd.etcd_accounts import EtcdAccounts
from master.store.etcd.etcd_channel import EtcdChannel
from master.store.etcd.etcd_config import Credentials, EtcdConfig
from master.store.etcd.etcd_store import EtcdStore
from master.store.etcd.stubs import rpc, stubs
from master.store.store_port import Committed, Put, Transaction

JOBS: Final = {4: 1000, 10: 100}  # by the cost of a hash
DROPPED: Final = 100
QUIET_S: Final = 5.0
ROOT: Final = Credentials(user="root", password=secrets.token_urlsafe(32))
MASTER: Final = Credentials(user="team-a.digits.00000000", password=secrets.token_urlsafe(32))
MIB: Final = 1024.0  # of KiB


@dataclass(slots=True)
class Commits:
    """How long each took, by what was done meanwhile; those whose outcome is unknown."""

    phase: str = "quiet"
    took_ms: dict[str, list[float]] = field(default_factory=dict)
    unknown: int = 0


async def measure(cost: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        binary = find_etcd(allow_demo_version=False, environ=os.environ, report=print)
        async with start_etcd(binary, Path(folder), options=[f"--bcrypt-cost={cost}"]) as etcd:
            config = EtcdConfig(endpoints=etcd.endpoints, credentials=ROOT)
            await enable_auth(config)
            accounts = EtcdAccounts(config, cluster="bench", is_separate=True)
            await accounts.make(MASTER.user, MASTER.password)
            store = EtcdStore(replace(config, credentials=MASTER), MASTER.user)
            commits = Commits()
            committing = asyncio.create_task(keep_committing(store, commits))
            await measure_beside(accounts, etcd, commits, cost)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            await store.close()
            await accounts.close()


async def enable_auth(config: EtcdConfig) -> None:
    channel = EtcdChannel(replace(config, credentials=None))
    for name, request in (
        ("UserAdd", rpc.AuthUserAddRequest(name=ROOT.user, password=ROOT.password)),
        ("RoleAdd", rpc.AuthRoleAddRequest(name="root")),
        ("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="root", role="root")),
        ("AuthEnable", rpc.AuthEnableRequest()),
    ):
        await channel.call(lambda grpc, name=name: getattr(stubs.AuthStub(grpc), name), request)  # type: ignore[misc]
    await channel.close()


async def keep_committing(store: EtcdStore, commits: Commits) -> None:
    leadership = await store.try_lead(holder="bench", ttl_s=600)
    assert leadership is not None
    while True:
        begun_s = time.perf_counter()
        value = Put(store.keys.head, str(begun_s).encode())
        outcome = await store.commit(Transaction(term=leadership.term, writes=(value,)))
        commits.unknown += not isinstance(outcome, Committed)
        commits.took_ms.setdefault(commits.phase, []).append(1000 * (time.perf_counter() - begun_s))
        await asyncio.sleep(0.001)


async def measure_beside(accounts: EtcdAccounts, etcd: EtcdCluster, commits: Commits, cost: int) -> None:
    jobs = [f"team-{number % 20}.job{number}.00000000" for number in range(JOBS[cost])]
    await asyncio.sleep(QUIET_S)
    before_mib, label = resident_mib(etcd), f"{len(jobs)} users of etcd, bcrypt cost {cost}"
    commits.phase = "made"
    made_ms = [await timed_ms(accounts.make(job, secrets.token_urlsafe(32))) for job in jobs]
    grown_mib = resident_mib(etcd) - before_mib
    commits.phase = "dropped"
    dropped_ms = [await timed_ms(accounts.drop(job)) for job in jobs[:DROPPED]]
    print_rows(
        [
            row_of(f"{label}: making one, median", made_ms),
            row_of(f"{label}: dropping one, median", dropped_ms),
            Row(name=f"{label}: what etcd grows by", value=grown_mib, unit="MiB", note=f"from {before_mib:.0f} MiB"),
            *(commits_row(label, phase, sorted(commits.took_ms[phase])) for phase in ("quiet", "made", "dropped")),
            Row(name=f"{label}: commits whose outcome is unknown", value=commits.unknown, unit="", goal="<= 0"),
        ]
    )


async def timed_ms(work: Any) -> float:
    begun_s = time.perf_counter()
    await work
    return 1000 * (time.perf_counter() - begun_s)


def row_of(name: str, took_ms: list[float]) -> Row:
    tenth = max(1, len(took_ms) // 10)
    first, last = statistics.mean(took_ms[:tenth]), statistics.mean(took_ms[-tenth:])
    note = f"the first tenth {first:.0f} ms, the last {last:.0f} ms, the longest {max(took_ms):.0f} ms"
    return Row(name=name, value=statistics.median(took_ms), unit="ms", note=note)


def commits_row(label: str, phase: str, took_ms: list[float]) -> Row:
    beside = "with none" if phase == "quiet" else f"while users are {phase}"
    note = f"median {statistics.median(took_ms):.1f} ms, longest {took_ms[-1]:.0f} ms of {len(took_ms)}"
    p99_ms = took_ms[int(0.99 * len(took_ms))]
    return Row(name=f"{label}: a master's commit {beside}, p99", value=p99_ms, unit="ms", note=note)


def resident_mib(etcd: EtcdCluster) -> float:
    lines = Path(f"/proc/{etcd.members[0].pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / MIB for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    for chosen in JOBS:
        asyncio.run(measure(chosen))
