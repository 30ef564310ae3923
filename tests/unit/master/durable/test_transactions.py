"""Each write of the core is one transaction that changes only what it was built on (rules 23, 26, 31)."""

from dataclasses import replace

import pytest

from master.api.identities import (
    NO_LINEAGE,
    BucketId,
    Incarnation,
    Lineage,
    ManifestId,
    MemberName,
    Route,
    ServerPlace,
    Version,
)
from master.api.messages.generations import Generation, GroupMember, HeadState, StateId
from master.api.positions import PositionSet
from master.durable.refounding import clear_transaction, is_empty, refounding_transaction
from master.durable.transactions import durable_keys, head_id, number_key, parse_durable, transaction_of
from master.errors import FencedError, PermanentError
from master.job.domain.durable_records import (
    UNNAMED_ORIGIN,
    Backups,
    BucketTable,
    ChangeTable,
    DatasetRecord,
    GenerationRecord,
    Intent,
    LineageRecord,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordFinalSave,
    RecordGeneration,
    RecordQuarantine,
    RecordServers,
    RefoundingRecord,
    ReserveHighWater,
    SwapHead,
)
from master.store.memory_store import MemoryCluster
from master.store.store_port import Committed, Conflict, Put, Transaction
from tests.unit.master.api.checkpoints.test_manifest_codec import MANIFEST

FOUNDED = RefoundingRecord(base=None, history=MANIFEST.history, above=Lineage(8))
FIRST = LineageRecord(number=Lineage(1), base=None)
SECOND = LineageRecord(number=Lineage(2), base=MANIFEST.id, quarantine=PositionSet.of(950))
DATASET = DatasetRecord(dataset=MANIFEST.dataset, tables=MANIFEST.tables)
PLACE = ServerPlace(name=MemberName("digits-server-0"), incarnation=Incarnation("a"), address="127.0.0.1:1", ordinal=0)
ROUTE = Route(revision=1, lineage=Lineage(1), servers=(PLACE,), owner=(0, 0), version=(Version(0), Version(0)))


@pytest.fixture
async def leader():
    """A store whose term this is, and a way to write."""
    store = MemoryCluster().store("digits")
    leadership = await store.try_lead(holder="me", ttl_s=60)

    class Leader:
        keys = store.keys
        term = leadership.term

        async def write(self, write):
            key = number_key(write, store.keys)
            number = (await store.read([key])).entries.get(key) if key else None
            return await store.commit(transaction_of(write, store.keys, leadership.term, number=number))

        async def commit(self, transaction):
            return await store.commit(transaction)

        async def durable(self, head=None):
            return parse_durable(await store.read(durable_keys(store.keys)), store.keys, head, UNNAMED_ORIGIN)

        async def snapshot(self):
            return await store.read(durable_keys(store.keys))

    return Leader()


async def test_what_is_written_is_what_a_new_master_reads(leader):
    """Take-over begins from the store alone (rule 17)."""
    assert is_empty(await leader.snapshot(), leader.keys)
    for write in (
        RecordDataset(record=DATASET),
        RaiseLineage(old=None, new=FIRST, route=ROUTE),
        ReserveHighWater(below=4096),
        RecordServers(count=4),
        RecordServers(count=3),
        SwapHead(parent=None, lineage=FIRST, manifest=MANIFEST.id),
        RaiseLineage(old=FIRST, new=replace(SECOND, quarantine=PositionSet()), route=None),
        RecordQuarantine(old=replace(SECOND, quarantine=PositionSet()), new=SECOND),
        RecordFinalSave(old=None, manifest=MANIFEST.id),
    ):
        assert isinstance(await leader.write(write), Committed), write
    durable = await leader.durable(MANIFEST)
    assert (durable.lineage, durable.dataset, durable.high_water) == (SECOND, DATASET, 4096)
    assert (durable.head, durable.route, durable.servers) == (MANIFEST, ROUTE, 3)
    assert durable.final_save == MANIFEST.id
    assert head_id(await leader.snapshot(), leader.keys) == MANIFEST.id
    assert not is_empty(await leader.snapshot(), leader.keys)


@pytest.mark.parametrize(
    "write",
    [
        SwapHead(parent=None, lineage=FIRST, manifest=ManifestId("m2")),  # head is m1
        SwapHead(parent=ManifestId("m1"), lineage=SECOND, manifest=ManifestId("m2")),  # the lineage is another
        RaiseLineage(old=None, new=FIRST, route=None),  # there is a lineage
        RaiseLineage(old=FIRST, new=SECOND, route=None),  # base is not head
        RecordQuarantine(old=SECOND, new=SECOND),
        RecordDataset(record=DATASET),  # recorded already
        RecordFinalSave(old=None, manifest=ManifestId("m2")),  # head is m1
        RecordFinalSave(old=ManifestId("m0"), manifest=ManifestId("m1")),  # none is recorded
    ],
)
async def test_a_write_built_on_something_else_does_not_happen(leader, write):
    """A manifest of an older lineage or parent is never committed (rule 23)."""
    for first in (
        RecordDataset(record=DATASET),
        RaiseLineage(old=None, new=FIRST, route=None),
        SwapHead(parent=None, lineage=FIRST, manifest=ManifestId("m1")),
    ):
        await leader.write(first)
    before = await leader.snapshot()
    assert isinstance(await leader.write(write), Conflict)
    assert (await leader.snapshot()).entries == before.entries


async def test_no_write_can_happen_twice(leader):
    """Each compares something that it changes for good, so that an attempt that lands late does nothing (rule 23)."""
    begun, _ = moving(ROUTE)
    for write in (
        RecordDataset(record=DATASET),
        RaiseLineage(old=None, new=FIRST, route=ROUTE),
        ReserveHighWater(below=4096),
        RecordServers(count=4),
        ChangeTable(old=BucketTable(route=ROUTE), new=begun),
        SwapHead(parent=None, lineage=FIRST, manifest=MANIFEST.id),
        RecordQuarantine(old=FIRST, new=replace(FIRST, quarantine=PositionSet.of(950))),
        RecordFinalSave(old=None, manifest=MANIFEST.id),
    ):
        key = number_key(write, leader.keys)
        number = (await leader.snapshot()).entries.get(key)
        transaction = transaction_of(write, leader.keys, leader.term, number=number)
        assert isinstance(await leader.commit(transaction), Committed), write
        assert isinstance(await leader.commit(transaction), Conflict), write


def moving(route):
    """The table with an intent for bucket 1, and what comes of it: as moved to itself."""
    here = MemberKey(name=PLACE.name, incarnation=PLACE.incarnation)
    intent = Intent(bucket=BucketId(1), lineage=Lineage(1), version=Version(0), source=here, target=here, reason="load")
    begun = BucketTable(route=replace(route, revision=2), intents=(intent,))
    return begun, BucketTable(route=replace(route, revision=3, version=(Version(0), Version(1))))


async def test_intents_come_and_go_with_the_table(leader):
    """Rules 40, 41, 45: INTENT and FLIP are one transaction each, and a new master reads both values."""
    begun, ended = moving(ROUTE)
    await leader.write(RaiseLineage(old=None, new=FIRST, route=ROUTE))
    assert isinstance(await leader.write(ChangeTable(old=BucketTable(route=ROUTE), new=begun)), Committed)
    durable = await leader.durable()
    assert (durable.route, durable.intents) == (begun.route, begun.intents)
    assert isinstance(await leader.write(ChangeTable(old=begun, new=ended)), Committed)
    assert (await leader.durable()).intents == ()


async def test_second_copies_are_recorded_with_the_table_and_absent_without(leader):
    """Rule 61: they change with the route only; a job with one copy has no such key (ADR 0318)."""
    nobody = Backups(backup=(-1, -1), owner_since=(Version(0), Version(1)), backup_since=(Version(0), Version(0)))
    _, ended = moving(ROUTE)
    await leader.write(RaiseLineage(old=None, new=FIRST, route=ROUTE, backups=nobody))
    paired = replace(nobody, backup=(-1, 0), wanted=PositionSet.of(0))
    before, after = BucketTable(route=ROUTE, backups=nobody), replace(ended, backups=paired)
    assert isinstance(await leader.write(ChangeTable(old=before, new=after)), Committed)
    durable = await leader.durable()
    assert (durable.route, durable.backups) == (after.route, paired)
    await leader.write(RaiseLineage(old=FIRST, new=LineageRecord(number=Lineage(2), base=None), route=ROUTE))
    assert (await leader.durable()).backups is None


async def test_a_table_change_built_on_another_table_does_not_happen(leader):
    """Rule 46: FLIP and UNDO exclude each other, and a roll-back deletes every intent (rule 56)."""
    begun, ended = moving(ROUTE)
    await leader.write(RaiseLineage(old=None, new=FIRST, route=ROUTE))
    await leader.write(ChangeTable(old=BucketTable(route=ROUTE), new=begun))
    again = replace(ROUTE, revision=3, lineage=Lineage(2))
    await leader.write(RaiseLineage(old=FIRST, new=LineageRecord(number=Lineage(2), base=None), route=again))
    assert isinstance(await leader.write(ChangeTable(old=begun, new=ended)), Conflict)
    durable = await leader.durable()
    assert (durable.route, durable.intents) == (again, ())


async def test_another_term_writes_nothing(leader):
    """A zombie's transaction is fenced by its own term (M2)."""
    with pytest.raises(FencedError):
        await leader.commit(transaction_of(ReserveHighWater(below=1), leader.keys, leader.term + 1))


async def test_names_that_no_value_may_carry_are_not_recorded(leader):
    """The mark is; whom a next master waits for is then unknown to it, whatever stood there (rule 18)."""
    some = tuple(MemberKey(name=MemberName(f"{n:09}"), incarnation=Incarnation("a")) for n in range(1_000))
    await leader.write(ReserveHighWater(below=1, trainers=some))
    assert (await leader.durable()).trainers == some
    long = tuple(replace(one, name=MemberName(one.name + "x" * 1_000)) for one in some)
    assert isinstance(await leader.write(ReserveHighWater(below=2, trainers=long)), Committed)
    durable = await leader.durable()
    assert (durable.high_water, durable.trainers) == (2, None)


async def test_an_empty_store_is_founded_again_from_the_folder(leader):
    """etcd lost: the job goes on exactly from the manifest, in a lineage above all others (M8, rule 29)."""
    again = refounding_transaction(MANIFEST, Lineage(6), leader.keys, await leader.snapshot(), leader.term)
    assert isinstance(await leader.commit(again), Committed)
    durable = await leader.durable(MANIFEST)
    assert durable.lineage == LineageRecord(number=Lineage(7), base=MANIFEST.id, quarantine=MANIFEST.quarantine)
    assert durable.dataset == DATASET
    assert isinstance(await leader.commit(again), Conflict)


async def test_a_store_that_has_learned_something_since_is_not_founded_again(leader):
    """A single value is enough: the store is the truth about head."""
    before = await leader.snapshot()
    await leader.write(ReserveHighWater(below=1))
    assert isinstance(
        await leader.commit(refounding_transaction(MANIFEST, NO_LINEAGE, leader.keys, before, leader.term)), Conflict
    )
    assert isinstance(await leader.commit(clear_transaction(FOUNDED, leader.keys, before, leader.term)), Conflict)


@pytest.mark.parametrize("is_anew", [True, False])
async def test_a_store_is_founded_again_as_read_but_for_the_number_of_servers(leader, is_anew):
    """Nothing of the table and of what was granted stays, and no lineage is used twice (M11)."""
    for write in (
        RecordDataset(record=DATASET),
        RaiseLineage(old=None, new=replace(FIRST, number=Lineage(8)), route=ROUTE),
        ReserveHighWater(below=4096),
        RecordServers(count=3),
    ):
        assert isinstance(await leader.write(write), Committed)
    before = await leader.snapshot()
    again = refounding_transaction(MANIFEST, Lineage(6), leader.keys, before, leader.term)
    anew = clear_transaction(FOUNDED, leader.keys, before, leader.term)
    assert isinstance(await leader.commit(anew if is_anew else again), Committed)
    durable = await leader.durable(MANIFEST)
    assert (durable.route, durable.high_water, durable.servers) == (None, 0, 3)
    assert (durable.lineage and durable.lineage.number) == (None if is_anew else 9)


async def test_values_of_another_edl_stop_the_master(leader):
    """What cannot be read is never guessed; the message names the key."""
    await leader.commit(Transaction(term=leader.term, writes=(Put(leader.keys.lineage, b'{"number": 3}'),)))
    with pytest.raises(PermanentError, match=r"/edl/v1/jobs/digits/lineage: .* is missing"):
        await leader.durable()


async def test_records_of_generations_and_head_are_fenced_by_one_another(leader):
    """Rules 76, 87: a record compares head and lineage, head the record; an older master changes nothing."""
    generation = Generation(
        number=1,
        lineage=Lineage(1),
        members=(GroupMember(name=PLACE.name, incarnation=PLACE.incarnation, address="unix:/t"),),
        head=HeadState(state=StateId(lineage=Lineage(1), generation=0, step=0)),
    )
    one = GenerationRecord(current=generation)
    two = GenerationRecord(current=replace(generation, number=2, planned_from=1), before=generation)
    first = RecordGeneration(old=None, new=one, head=None, lineage=FIRST)
    assert isinstance(await leader.write(first), Conflict)  # there is no lineage
    await leader.write(RaiseLineage(old=None, new=FIRST, route=None))
    assert isinstance(await leader.write(first), Committed)
    assert isinstance(await leader.write(first), Conflict)
    head = SwapHead(parent=None, lineage=FIRST, manifest=ManifestId("m1"), generation=one)
    assert isinstance(await leader.write(replace(head, generation=two)), Conflict)
    assert isinstance(await leader.write(head), Committed)
    second = RecordGeneration(old=one, new=two, head=None, lineage=FIRST)
    assert isinstance(await leader.write(second), Conflict)  # head is m1 by now
    assert isinstance(await leader.write(replace(second, head=ManifestId("m1"))), Committed)
    assert (await leader.durable()).generation == two
