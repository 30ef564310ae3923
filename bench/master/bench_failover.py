"""Benchmark of master failover: time after a kill until the next one grants work, and until commits go on.

`beside`: its process dies on its node, where another stands by (ADR 0202).  `again`: as soon as it grants, while the
interpreter of the next one still starts.  `cold`: the same without that one.  `elsewhere`: nobody sees it die, and
another master, as on another node, waits for the lease.  docs/reports/failover.json keeps the raw times of every kill.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import grpc.aio

from autoscaler.clusters.kubernetes.api.kinds import SECRETS
from autoscaler.clusters.kubernetes.builders.pod_environment import TOKEN
from autoscaler.clusters.kubernetes.objects.names import member_secret, store_name
from autoscaler.etcd_server.etcd_members import start_etcd
from autoscaler.etcd_server.finder import find_etcd
from autoscaler.local_run.local_run import LocalRun
from bench.cluster.bench_cluster import cluster
from bench.reporting.result_rows import Row, print_rows
from master.api.edl.master.v1 import master_pb2
from master.api.edl.master.v1.master_pb2_grpc import MasterStub
from master.api.master_status import JobStatus, decode_status
from master.api.wire.call_proof import Prover
from master.api.wire.calls import STATUS, call_master
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import Hello
from master.api.wire.message_codec import encode_hello
from master.store.etcd.etcd_config import EtcdConfig
from master.store.etcd.etcd_store import EtcdStore

RAW: Final = Path(__file__).parents[2] / "docs" / "reports" / "failover.json"
JOB: Final = "job"
MASTER: Final = "job-master-local-0"
KILLS: Final = {"beside": 200, "again": 20, "cold": 10, "elsewhere": 10}
LEASE_S: Final = 6
START_S: Final = 3.0  # of an interpreter on a busy machine
STEP_S: Final = "0.1"  # of a trainer: the job outlives the kills
EPOCHS: Final = "100"
"""Enough to outlast the kills.  Half way all positions are reserved: from then on a master grants below the mark alone,
as it does near the end of every job (rule 18)."""
POLL_S: Final = 0.01
LIMIT_S: Final = 60.0
QUIET_S: Final = (0.2, 1.2)  # from when another one stands by to the kill
EVERY_S: Final = 2.0  # of commits: from one's end to the next one's begin


@dataclass(slots=True)
class Watch:
    """What the masters say, at any moment."""

    status: JobStatus | None = None
    commits_s: list[float] = field(default_factory=list)  # when each new head was seen

    def take(self, status: JobStatus | None) -> None:
        before, self.status = self.status, status or self.status
        if status is not None and status.head is not None and (before is None or before.head != status.head):
            self.commits_s.append(time.monotonic())


async def follow(run: LocalRun, watch: Watch) -> None:
    """Ask the master, whoever it is, for ever."""
    while JOB not in run.jobs() or not has_secret(run):  # noqa: ASYNC110 - once, of the operator's
        await asyncio.sleep(POLL_S)
    job = run.jobs()[JOB].job
    name = store_name(job.namespace, job.name, job.uid)
    secret = run.plane.server.get(SECRETS, job.namespace, member_secret(job.name))
    token = base64.b64decode(secret["data"][TOKEN]).decode()
    request = master_pb2.StatusRequest(hello=encode_hello(Hello(job=name, software="bench")))
    while True:
        async with grpc.aio.insecure_channel(run.plane.socket_of(name), options=CLIENT_OPTIONS) as channel:
            stub: Any = MasterStub(channel)
            prover = Prover(token=token, job=name)
            try:
                while True:
                    reply = await call_master(prover, stub.Status, STATUS, request, limit_s=1.0)
                    watch.take(decode_status(reply.job_status_json))
                    await asyncio.sleep(POLL_S)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(POLL_S)


async def until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until the condition holds."""
    begun_s = time.monotonic()
    while not condition():
        if time.monotonic() - begun_s > LIMIT_S:
            raise SystemExit(f"waited in vain for {what}")
        await asyncio.sleep(POLL_S / 2)
    return time.monotonic() - begun_s


async def kill_all(run: LocalRun, watch: Watch, kind: str) -> list[dict[str, float]]:
    """One row a kill: seconds until a new term leads, until it grants, and between the commits around it.

    `covered_s`: from the last grant on, until another one stood by again.
    """
    rows, killed_s, covered_s = [], [], 0.0
    for number in range(KILLS[kind]):
        if kind == "beside" or (kind == "again" and number % 2 == 0):
            covered_s = await until(lambda: one_stands_by(run), "one that stands by")
        if kind != "again" or number % 2 == 0:
            await asyncio.sleep(random.uniform(*QUIET_S))  # noqa: S311  not a secret
        assert watch.status is not None
        term = watch.status.term
        killed_s.append(time.monotonic())
        if kind == "cold":
            run.kill(MASTER)  # with the one that stands by
        else:
            os.kill(master_pid(run), signal.SIGKILL)
        led_s = await until(lambda term=term: leads_after(watch, term), "the next term")  # type: ignore[misc]
        grants_s = led_s + await until(lambda: grants(watch), "a grant")
        rows.append({"covered_s": round(covered_s, 3), "leads_s": round(led_s, 3), "grants_s": round(grants_s, 3)})
    seen = len(watch.commits_s)
    await until(lambda: len(watch.commits_s) > seen, "a last commit")
    gaps = list(pairwise(watch.commits_s))
    for row, at_s in zip(rows, killed_s, strict=True):
        row["commit_gap_s"] = round(next(later - earlier for earlier, later in gaps if later > at_s), 3)
    return rows


def has_secret(run: LocalRun) -> bool:
    return any(raw["metadata"]["name"] == member_secret(JOB) for raw in run.plane.server.all(SECRETS))


def master_pid(run: LocalRun) -> int:
    """The process of the pod that leads: the older of the supervisor's two, which /proc names first."""
    (pod,) = [pod for pod in run.snapshot().pods if pod.name == MASTER]
    children = Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text(encoding="ascii").split()
    return int(children[0])


def one_stands_by(run: LocalRun) -> bool:
    """As the processes' log says."""
    text = run.folder.log_of(MASTER).read_text(encoding="utf-8")
    return text.rfind("master.process.standby: stands by") > text.rfind("master.process.standby: takes over")


def leads_after(watch: Watch, term: int) -> bool:
    return watch.status is not None and watch.status.term > term


def grants(watch: Watch) -> bool:
    return watch.status is not None and watch.status.positions.leased > 0


async def kill_elsewhere(count: int) -> list[dict[str, float]]:
    """Two masters that know nothing of one another: seconds from the leader's death to the next term."""
    binary = find_etcd(allow_demo_version=False, environ=os.environ, report=print)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        async with start_etcd(binary, Path(name) / "etcd") as etcd:
            store = EtcdStore(EtcdConfig(endpoints=etcd.endpoints), JOB)
            masters = {one: await start_master(Path(name), one, etcd.endpoints) for one in ("a", "b")}
            for _ in range(count):
                await asyncio.sleep(START_S + random.uniform(*QUIET_S))  # noqa: S311  not a secret
                while (leader := await store.read_leader()) is None:  # noqa: ASYNC110 - of others
                    await asyncio.sleep(POLL_S)
                begun_s, dead = time.monotonic(), leader.holder[0]
                masters[dead].kill()
                await masters[dead].wait()
                while (now := await store.read_leader()) is None or now.term == leader.term:  # noqa: ASYNC110 - of others
                    await asyncio.sleep(POLL_S)
                rows.append({"leads_s": round(time.monotonic() - begun_s, 3)})
                masters[dead] = await start_master(Path(name), dead, etcd.endpoints)
            for master in masters.values():
                master.kill()
                await master.wait()
            await store.close()
    return rows


async def start_master(folder: Path, name: str, endpoints: tuple[str, ...]) -> asyncio.subprocess.Process:
    environment = os.environ | {
        "EDL_ENV_VERSION": "1", "EDL_JOB": JOB, "EDL_NAME": name, "EDL_LISTEN": "127.0.0.1:0", "EDL_MASTERS": "2",
        "EDL_ETCD_ENDPOINTS": ",".join(endpoints), "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
        "EDL_LEADER_TTL_S": str(LEASE_S),
    }  # fmt: skip
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "master", env=environment, stderr=asyncio.subprocess.DEVNULL
    )


async def measure(kind: str) -> list[dict[str, float]]:
    os.environ |= {"STEP_S": STEP_S, "EPOCHS": EPOCHS}
    with tempfile.TemporaryDirectory() as folder:
        async with cluster(Path(folder), nodes=2, most=2) as run:
            watch = Watch()
            following = asyncio.create_task(follow(run, watch))
            await until(lambda: grants(watch) and len(watch.commits_s) > 1, "a job that trains and commits")
            rows = await kill_all(run, watch, kind)
            rows = rows[1::2] if kind == "again" else rows  # each second one comes at once after the first
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return rows


def rows_of(kind: str, kills: Sequence[dict[str, float]], goal: str) -> list[Row]:
    if not kills:
        return []
    grants_s = sorted(kill["grants_s"] for kill in kills)
    gaps_s = sorted(kill["commit_gap_s"] for kill in kills)
    covered_s = sorted(kill["covered_s"] for kill in kills[1:])
    note = f"{len(kills)} kills; median {statistics.median(grants_s):.2f} s, longest {grants_s[-1]:.2f} s"
    if any(covered_s):
        note += (
            f"; another stood by {statistics.median(covered_s):.2f} s later at the median, p99 {p99(covered_s):.2f} s"
        )
    gaps = f"median {statistics.median(gaps_s):.2f} s, longest {gaps_s[-1]:.2f} s; commits every {EVERY_S:g} s"
    return [
        Row(name=f"master killed, {kind}: to the next grant, p99", value=p99(grants_s), unit="s", goal=goal, note=note),
        Row(
            name=f"master killed, {kind}: between two commits, p99", value=p99(gaps_s), unit="s", goal="<= 3", note=gaps
        ),
    ]


def p99(ordered: list[float]) -> float:
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


async def main(kinds: list[str]) -> None:
    raw = json.loads(RAW.read_text(encoding="utf-8")) if kinds and RAW.exists() else {}
    for kind in kinds or KILLS:
        raw[kind] = await (kill_elsewhere(KILLS[kind]) if kind == "elsewhere" else measure(kind))
        RAW.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    for kind, words, goal in (
        ("beside", "another stands by", "<= 1"),
        ("again", "the next one still starts", ""),
        ("cold", "none stands by", ""),
    ):
        print_rows(rows_of(words, raw.get(kind, ()), goal))
    print_rows(elsewhere_rows(raw.get("elsewhere", ())))


def elsewhere_rows(kills: Sequence[dict[str, float]]) -> list[Row]:
    terms_s = sorted(kill["leads_s"] for kill in kills)
    if not terms_s:
        return []
    note = f"{len(terms_s)} kills; median {statistics.median(terms_s):.2f} s, longest {terms_s[-1]:.2f} s"
    goal = f"<= {LEASE_S + 0.5}"
    return [Row(name="master killed unseen: to the next term, p99", value=p99(terms_s), unit="s", goal=goal, note=note)]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
