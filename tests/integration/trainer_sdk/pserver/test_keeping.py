"""KEEP with real tables and files: what stays is untouched, what was lost is that of the checkpoint (rule 30)."""

from dataclasses import replace

import numpy as np
import pytest

from master.api.identities import CutId, Lineage, ManifestId, Term, Version
from master.api.messages.from_members import Restored, RestoreFailed, Written
from master.api.messages.to_members import Cut, Hold, KeptBuckets
from tests.integration.trainer_sdk.pserver.in_process_servers import (
    BUCKETS,
    FIRST,
    PATIENCE_S,
    TABLES,
    batch,
    span,
    verdicts,
)
from trainer_sdk.errors import NotReadyError
from trainer_sdk.pserver.core.messages import PushVerdict

ALL = span(0, BUCKETS)
SECOND = Lineage(2)


def contents(server, buckets):
    """Every number of these buckets."""
    return {
        (number, table, name): array.copy()
        for number in buckets
        for table, arrays in server.service._shell.model.content(number)
        for name, array in arrays.items()
    }


def are_equal(some, others):
    return some.keys() == others.keys() and all((array == others[name]).all() for name, array in some.items())


def keeping(order, files, *, buckets=ALL, lineage=SECOND):
    """To the owner of `order`, which is told to have `buckets` from now on."""
    kept = (KeptBuckets(lineage=order.lineage, version=Version(0), buckets=order.buckets),)
    return replace(
        order,
        lineage=lineage,
        base=ManifestId("m") if files else None,
        files=files,
        data=span(0, 4) if files else order.data,
        buckets=buckets,
        kept=kept,
    )


@pytest.fixture
def job(new_job):
    """Two servers with positions 0 to 3 in a checkpoint and 4 to 7 after it."""
    job = new_job(2).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    for server in job.servers:
        server.wait_for(Written)
    job.push(4, 8)
    return job


@pytest.fixture
def files(job):
    return tuple(server.wait_for(Written).file for server in job.servers)


@pytest.fixture
def client(job):
    """A trainer that knows: the first server has all buckets now."""
    route = replace(job.route, revision=2, lineage=SECOND, servers=job.route.servers[:1], owner=(0,) * BUCKETS)
    client = job.new_client()
    client.set_route(route, TABLES, BUCKETS)
    yield client
    client.close()


def test_a_survivor_takes_over_what_was_lost_beside_what_it_keeps(new_job, job, files, client):
    """Parameters, slots, counts and rows; then what is missing is applied once where it is missing (M1)."""
    survivor, lost = job.servers[0], job.orders[1].buckets
    mine = job.orders[0].buckets
    before = contents(survivor, mine)
    survivor.service.control(keeping(job.orders[0], files))
    survivor.wait_for(Restored, count=2)
    base = new_job(1, first=9, lineage=2, files=files, data=span(0, 4)).restore()
    assert are_equal(contents(survivor, mine), before)
    assert are_equal(contents(survivor, lost), contents(base.servers[0], lost))

    answer = client.push(SECOND, span(4, 8), batch(np.arange(4, 8)))
    assert verdicts(answer) == {(PushVerdict.REPEAT, str(mine)), (PushVerdict.APPLIED, str(lost))}
    assert client.pull(["c"]).tables["c"].tolist() == [1] * 8 + [0] * 16
    assert (client.pull_rows("e", np.arange(24)).rows[:, 0] == [1] * 8 + [0] * 16).all()


def test_what_is_kept_is_watched_for_no_move_of_before(job):
    """Pushes would pay for it as long as the bucket stays, and no copy builds on it any more."""
    survivor, number = job.servers[0], 11
    model = survivor.service._shell.model
    whole = model.rest_bytes(number)
    model.watch(number)
    assert model.rest_bytes(number) < whole
    survivor.service.control(keeping(job.orders[0], ()))
    survivor.wait_for(Restored, count=2)
    assert survivor.service._shell.model is model
    assert model.rest_bytes(number) == whole


def test_the_next_cut_is_of_one_data_state(job, files, client):
    """Rule 22: what was lost has caught up, and the file says one thing of all buckets."""
    survivor = job.servers[0]
    survivor.service.control(keeping(job.orders[0], files))
    survivor.wait_for(Restored, count=2)
    cut = CutId(term=Term(1), lineage=SECOND, sequence=FIRST.sequence)
    survivor.service.control(Hold(cut=cut))
    survivor.service.control(Cut(cut=cut, data=span(0, 8)))
    client.push(SECOND, span(8, 12), batch(np.arange(8, 12)))  # outside D: to the live buckets alone
    client.push(SECOND, span(4, 8), batch(np.arange(4, 8)))
    survivor.wait_for(Written, count=2)
    (marks,) = survivor.all_of(Written)[1].file.marks
    assert (marks.buckets, marks.applied) == (ALL, span(0, 8))


def test_what_was_lost_before_any_checkpoint_begins_with_its_first_values(new_job, client, job):
    """The base may be nothing at all."""
    survivor, lost = job.servers[0], job.orders[1].buckets
    before = contents(survivor, job.orders[0].buckets)
    survivor.service.control(keeping(job.orders[0], ()))
    survivor.wait_for(Restored, count=2)
    fresh = new_job(1, first=9, lineage=2).restore()
    assert are_equal(contents(survivor, job.orders[0].buckets), before)
    assert are_equal(contents(survivor, lost), contents(fresh.servers[0], lost))


def test_a_file_that_cannot_be_read_costs_nothing_of_what_is_kept(tmp_path, job, files, client):
    """RestoreFailed names it; once it can be read, the same order brings the rest."""
    survivor, mine = job.servers[0], job.orders[0].buckets
    before = contents(survivor, mine)
    path = tmp_path / "checkpoints" / files[1].name
    path.rename(path.with_suffix(".away"))
    order = keeping(job.orders[0], files)
    survivor.service.control(order)
    assert files[1].name in survivor.wait_for(RestoreFailed).message
    with pytest.raises(NotReadyError):
        client.pull()
    path.with_suffix(".away").rename(path)
    survivor.service.control(order)
    survivor.wait_for(Restored, count=2)
    assert are_equal(contents(survivor, mine), before)
    client.push(SECOND, span(4, 8), batch(np.arange(4, 8)))
    assert client.pull(["c"]).tables["c"].tolist() == [1] * 8 + [0] * 16


def test_an_order_that_overtakes_an_unfinished_one_keeps_what_that_kept(job, files, client):
    """A second server was lost meanwhile: nobody waits for the first one's files (rule 28)."""
    survivor, mine = job.servers[0], job.orders[0].buckets
    before = contents(survivor, mine)
    survivor.service.control(keeping(job.orders[0], files))
    second = keeping(replace(job.orders[0], lineage=SECOND), files, lineage=Lineage(3))
    survivor.service.control(second)
    with survivor.heard:
        assert survivor.heard.wait_for(lambda: Restored(lineage=Lineage(3)) in survivor.said, timeout=PATIENCE_S)
    assert are_equal(contents(survivor, mine), before)
    assert verdicts(client.push(SECOND, span(4, 8), batch(np.arange(4, 8)))) == {(PushVerdict.STALE_LINEAGE, "0-31")}
