"""A job's parameter servers in this process, its tables (a ledger among them) and one trainer's client."""

import socket
import threading

import numpy as np

from master.api.checkpoints.storage import open_storage
from master.api.identities import (
    CutId,
    Incarnation,
    Initialiser,
    Lineage,
    ManifestId,
    MemberName,
    OptimiserSpec,
    Route,
    ServerPlace,
    TableSpec,
    Term,
    Version,
)
from master.api.messages.from_members import Restored
from master.api.messages.to_members import Cut, Hold, Restore
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.client.pserver_client import PserverClient
from trainer_sdk.pserver.core.server_state import ServerLimits
from trainer_sdk.pserver.process.data_listener import DataListener
from trainer_sdk.pserver.process.parameter_server import ParameterServer
from trainer_sdk.pserver.shell import ServerContext
from trainer_sdk.transport.frames import WireLimits
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings

BUCKETS = 32
TABLES = (
    TableSpec(
        name="w",
        shape=(30, 40),
        initialiser=Initialiser(kind="normal", scale=1.0),
        optimiser=OptimiserSpec(kind="adam", learning_rate=0.1),
    ),
    TableSpec(name="c", shape=(24,), dtype="int64", optimiser=OptimiserSpec(learning_rate=-1.0)),
    TableSpec(name="e", shape=(200, 3), kind="sparse", dtype="int64", optimiser=OptimiserSpec(learning_rate=-1.0)),
)
FIRST = CutId(term=Term(1), lineage=Lineage(1), sequence=1)
PATIENCE_S = 60.0
"""Of both sides with each other: who runs out of it here stands still, or is gone, and is not merely slow."""


def span(start, stop):
    return PositionSet.span(start, stop)


class Server:
    """One server in this process: its service, its port, and what it has told the master."""

    def __init__(self, index, folder, security, hold_s):
        self.said = []
        self.heard = threading.Condition()
        self.broken = []
        outside = ServerContext(
            storage=open_storage(str(folder)), notify_master=self.tell, fatal=self.broken.append, security=security
        )
        self.incarnation = Incarnation(f"process-{index}")
        self.service = ParameterServer(
            name=MemberName(f"server-{index}"),
            incarnation=self.incarnation,
            context=outside,
            limits=ServerLimits(hold_s=hold_s),
        )
        listening = socket.create_server(("127.0.0.1", 0))
        self.listener = DataListener(self.service, security, listening, WireLimits(io_s=PATIENCE_S))

    @property
    def place(self):
        return ServerPlace(
            name=MemberName("s"), incarnation=self.incarnation, address=f"127.0.0.1:{self.listener.port}", ordinal=0
        )

    def tell(self, message):
        with self.heard:
            self.said.append(message)
            self.heard.notify_all()

    def wait_for(self, kind, *, count=1):
        """The first message of this kind, once so many have been said."""
        with self.heard:
            assert self.heard.wait_for(lambda: len(self.all_of(kind)) >= count, timeout=PATIENCE_S), self.said
            return self.all_of(kind)[0]

    def all_of(self, kind):
        return [message for message in self.said if isinstance(message, kind)]

    def close(self):
        self.listener.close()
        self.service.close()
        assert self.broken == []


class Job:
    """Some servers, their route and one trainer's client."""

    def __init__(
        self,
        folder,
        count,
        *,
        first=0,
        security=None,
        lineage=1,
        files=(),
        data=EMPTY,
        tables=TABLES,
        hold_s=PATIENCE_S,
    ):
        self.security = security or Security()
        self.lineage = Lineage(lineage)
        self.tables = tables
        self.servers = [Server(first + index, folder, self.security, hold_s) for index in range(count)]
        owner = tuple(bucket * count // BUCKETS for bucket in range(BUCKETS))
        self.orders = [
            Restore(
                incarnation=server.incarnation,
                lineage=self.lineage,
                base=ManifestId("m") if files else None,
                files=files,
                data=data,
                quarantine=EMPTY,
                tables=tables,
                bucket_count=BUCKETS,
                buckets=PositionSet.of(*(bucket for bucket in range(BUCKETS) if owner[bucket] == index)),
                version=Version(0),
            )
            for index, server in enumerate(self.servers)
        ]
        self.route = Route(
            revision=1,
            lineage=self.lineage,
            servers=tuple(server.place for server in self.servers),
            owner=owner,
            version=(Version(0),) * BUCKETS,
        )
        self.client = self.new_client()

    def new_client(self, budget_s=PATIENCE_S):
        client = PserverClient(self.security, ConnectionSettings(budget_s=budget_s, limits=WireLimits(io_s=PATIENCE_S)))
        client.set_route(self.route, self.tables, BUCKETS)
        return client

    def restore(self):
        for server, order in zip(self.servers, self.orders, strict=True):
            server.service.control(order)
            server.wait_for(Restored)
        return self

    def push(self, start, stop, **more):
        ids = np.arange(start, stop)
        return self.client.push(self.lineage, span(start, stop), batch(ids), **more)

    def cut(self, data, cut=FIRST):
        for server in self.servers:
            server.service.control(Hold(cut=cut))
        for server in self.servers:
            server.service.control(Cut(cut=cut, data=data))

    def counts(self):
        """Every counter, dense and sparse: how often each position was applied."""
        _, tables = self.client.pull(["c"])
        rows = self.client.pull_rows("e", np.arange(24)).rows
        assert (rows == tables["c"][:, None]).all()
        return tables["c"].tolist()

    def close(self):
        self.client.close()
        for server in self.servers:
            server.close()


def batch(ids):
    """The ledger: a one for each position, in a dense and in a sparse table."""
    ones = np.zeros(24, dtype=np.int64)
    ones[ids] = 1
    return {
        "w": np.full((30, 40), 0.5, dtype=np.float32),
        "c": ones,
        "e": (ids, np.ones((len(ids), 3), dtype=np.int64)),
    }


def verdicts(answer):
    return {(ruling.verdict, str(ruling.buckets)) for ruling in answer.rulings}
