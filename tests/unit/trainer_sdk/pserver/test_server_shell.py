"""What a server holds on to: memory of one model at a time, and what would be lost with it."""

from __future__ import annotations

import queue
import weakref
from dataclasses import replace

import numpy as np
import pytest

from master.api.checkpoints.storage import open_storage
from master.api.identities import BucketId, CutId, Incarnation, Lineage, MemberName, TableSpec, Term, Version
from master.api.messages.from_members import Restored
from master.api.messages.to_members import Cut, Drop, Hold, KeptBuckets, Restore
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import TableError
from trainer_sdk.pserver.core.messages import CopyHead
from trainer_sdk.pserver.core.server_events import CopyArrived, ModelLoaded
from trainer_sdk.pserver.core.server_state import ServerLimits
from trainer_sdk.pserver.process.parameter_server import ParameterServer
from trainer_sdk.pserver.shell import ServerContext, Shell
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model
from trainer_sdk.pserver.wire.bodies import BufferPool
from trainer_sdk.pserver.wire.heads import PullHead, Section, SectionKind
from trainer_sdk.pserver.wire.peer_heads import CopyStatus

HERE = Incarnation("here")
FIRST, SECOND = Lineage(1), Lineage(2)
MINE = PositionSet.span(0, 4)
TABLES = (TableSpec(name="c", shape=(64,)), TableSpec(name="e", shape=(64, 4), kind="sparse"))
A_MINUTE_S = 60.0


def order(lineage, *, buckets=MINE, kept=()):
    return Restore(
        incarnation=HERE,
        lineage=lineage,
        base=None,
        files=(),
        data=EMPTY,
        quarantine=EMPTY,
        tables=TABLES,
        bucket_count=4,
        buckets=buckets,
        version=Version(0),
        kept=kept,
    )


def copy(*, is_final):
    head = CopyHead(
        lineage=FIRST,
        bucket=BucketId(1),
        version=Version(1),
        target=HERE,
        is_final=is_final,
        applied=EMPTY,
        skipped=EMPTY,
        digest="of it",
        base="",
    )
    return CopyArrived(head=head)


@pytest.fixture
def said():
    return queue.SimpleQueue()


@pytest.fixture
def outside(tmp_path, said):
    return ServerContext(storage=open_storage(tmp_path.as_uri()), notify_master=said.put, fatal=lambda error: None)


@pytest.fixture
def shell(outside):
    """With a model of the first lineage; loads that are begun after it are not done."""
    shell = Shell(incarnation=HERE, context=outside, limits=ServerLimits(), begin=lambda errand: None)
    first = order(FIRST)
    shell.control(first)
    assert shell.install_model(first, Model(Layout.of(TABLES, 4), MINE))
    shell.control(ModelLoaded(lineage=FIRST, marks=()))
    return shell


def test_a_model_that_is_rolled_back_is_gone_before_the_next_one_is_read(shell):
    """A server is sized for one model and a little more, not for two."""
    model = weakref.ref(shell.model)
    shell.control(order(SECOND))
    assert model() is None


def test_a_model_of_which_something_is_kept_stays(shell):
    model = weakref.ref(shell.model)
    kept = (KeptBuckets(lineage=FIRST, version=Version(0), buckets=PositionSet.of(0)),)
    shell.control(order(SECOND, kept=kept))
    assert shell.model is model()
    assert shell.model.buckets == PositionSet.of(0)


@pytest.mark.parametrize("head_of", [FIRST, SECOND])
def test_a_copy_for_a_model_that_is_not_here_is_not_received(outside, head_of):
    """Its body would be for nothing: the order is said again once the model is (rule 43)."""
    service = ParameterServer(name=MemberName("s0"), incarnation=HERE, context=outside)
    try:
        assert service.transfer.try_answer(replace(copy(is_final=True).head, lineage=head_of)) is CopyStatus.ARRIVED
    finally:
        service.close()


def test_rows_that_a_table_does_not_have_are_refused_by_its_name(outside, said):
    """Before anything is read: NumPy would take some of them from the end."""
    service = ParameterServer(name=MemberName("s0"), incarnation=HERE, context=outside)
    try:
        service.control(order(FIRST))
        assert said.get(timeout=A_MINUTE_S) == Restored(lineage=FIRST)
        layout = Layout.of(TABLES, 4)
        for wrong in (-1, 64):
            ids = np.array([0, wrong])
            head = PullHead(layout=layout.digest, buckets=MINE, sections=(Section(1, SectionKind.SPARSE, 2),))
            with pytest.raises(TableError, match=r"pull\.tables\.e"):
                service.pull(head, ids.data.cast("B"), BufferPool())
        assert service.lineage == FIRST
    finally:
        service.close()


@pytest.mark.parametrize("is_final", [False, True])
def test_what_was_sent_ahead_is_nothing_that_could_be_lost(outside, said, is_final):
    """It can never be served; a hand-over can, and the table may name this server by now."""
    service = ParameterServer(name=MemberName("s0"), incarnation=HERE, context=outside)
    try:
        service.control(order(FIRST, buckets=EMPTY))
        assert said.get(timeout=A_MINUTE_S) == Restored(lineage=FIRST)
        assert not service.has_buckets
        service.control(copy(is_final=is_final))
        assert service.has_buckets == is_final
    finally:
        service.close()


def test_a_cut_that_is_given_up_leaves_no_fork_behind(shell):
    """Rows that are kept for a file which nobody will commit would be kept until the next cut."""
    cut = CutId(term=Term(1), lineage=FIRST, sequence=1)
    shell.control(Hold(cut=cut))
    shell.control(Cut(cut=cut, data=PositionSet.span(0, 4)))
    assert [part._fork is None for part in shell.model.stores] == [False, False]
    shell.control(Drop(cut=cut))
    assert [part._fork is None for part in shell.model.stores] == [True, True]
