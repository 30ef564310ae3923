"""What the tests of a job whose buckets move say and ask, beside `driver`."""

from __future__ import annotations

from master.api.identities import Version
from master.api.messages.from_members import Ack, Installed
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import MovesRequested
from master.job.placement.owner_placement import Move
from tests.unit.master.job.driver import Marks, key, run_servers

T0 = key("t0")
CONFIG = JobConfig(servers=2, max_servers=3, bucket_count=4)
ELASTIC = JobConfig(servers=2, max_servers=4, bucket_count=8)
TO_S1 = MovesRequested(moves=(Move(bucket=0, source=0, target=1),), reason="load")


def to(driver, member, kind):
    return [message for recipient, message in driver.sent if recipient == member and isinstance(message, kind)]


def installed(driver, server, bucket, version=1):
    return driver.send(
        server.key, Installed(lineage=driver.state.number, bucket=bucket, version=Version(version), digest="d")
    )


def carry(driver, servers):
    """Every bucket on its way arrives, until nothing moves any more."""
    by_key = {server.key: server for server in servers}
    for _ in range(50):
        run_servers(driver, servers)
        if not driver.state.moves.intents:
            return
        for intent in driver.state.moves.intents:
            if intent.target in by_key:
                installed(driver, by_key[intent.target], intent.bucket, intent.version + 1)
    raise AssertionError("buckets move without end")


def owners(driver):
    route = driver.durable.route
    return [route.servers[owner].name for owner in route.owner]


def owners_of(driver, server):
    return [bucket for bucket, name in enumerate(owners(driver)) if name == server.key.name]


def train(driver, servers, request=1):
    (lease,) = driver.leases(T0, request)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    return lease.positions


def grow(driver, servers, count=3):
    """One more is wanted and registers; its buckets are on their way."""
    driver.want(count)
    servers.append(Marks(driver, count - 1))
    servers[-1].register()
    run_servers(driver, servers)


def grown(job, count=3):
    """So many servers own buckets."""
    driver, servers = job
    driver.want(count)
    for ordinal in range(len(servers), count):
        servers.append(Marks(driver, ordinal))
        servers[-1].register()
    carry(driver, servers)
    return driver, servers
