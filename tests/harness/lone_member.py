"""The runtime of a group's only member, told by a test what a master says: no master is there to be reached."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from master.api.checkpoints.local_storage import LocalStorage
from master.api.identities import DatasetSpec, Incarnation, Lineage, MemberName, Term
from master.api.messages.generations import (
    Generation,
    GroupMember,
    HeadState,
    NewGeneration,
    ReplicaRegistered,
    StateId,
)
from master.api.wire.hello import Hello
from trainer_sdk.collective import CollectiveListener
from trainer_sdk.group.core.member_state import MemberState
from trainer_sdk.group.member_runtime import MemberRuntime
from trainer_sdk.group.port import CapturedState
from trainer_sdk.master_stream import MasterAddress
from trainer_sdk.transport.security import Security

DATASET = DatasetSpec(name="digits", size=64, epochs=4, batch_size=4)
LINEAGE = Lineage(1)
NAME, INCARNATION = MemberName("trainer-0"), Incarnation("process-0")


class Weights:
    """A replica of one array."""

    layout = "weights"

    def __init__(self) -> None:
        self.values = np.zeros(4, dtype=np.float32)

    def capture(self) -> CapturedState:
        return CapturedState(arrays={"values": self.values.copy()})

    def restore(self, captured: CapturedState) -> None:
        self.values[:] = captured.arrays["values"]


@contextmanager
def lone_member() -> Iterator[MemberRuntime]:
    """Registered, and in no generation yet."""
    with tempfile.TemporaryDirectory() as folder:
        listener = CollectiveListener(f"unix:{folder}", Security(token=b"secret"), INCARNATION)
        state = MemberState(
            name=NAME,
            ordinal=0,
            incarnation=INCARNATION,
            address=listener.address,
            dataset=DATASET,
            layout=Weights.layout,
        )
        runtime = MemberRuntime(
            state,
            replica=Weights(),
            listener=listener,
            storage=LocalStorage(Path(folder)),
            master=MasterAddress(target="127.0.0.1:9", hello=Hello(job="digits", software="test")),
        )
        try:
            registered = ReplicaRegistered(term=Term(1), lineage=LINEAGE, dataset=DATASET, report_every_s=60.0)
            runtime.shell.received((registered,))
            yield runtime
        finally:
            runtime.leave("the test is over", farewell_s=0.0)


def generation(number: int, *others: GroupMember, address: str = "unix:/nowhere") -> NewGeneration:
    """A record of this member, as the first rank, and of these."""
    head = HeadState(state=StateId(lineage=LINEAGE, generation=0, step=0))
    me = GroupMember(name=NAME, incarnation=INCARNATION, address=address)
    return NewGeneration(record=Generation(number=number, lineage=LINEAGE, members=(me, *others), head=head))
