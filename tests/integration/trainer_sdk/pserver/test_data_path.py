"""Parameter servers over real sockets: pushes, pulls, lost connections, servers that are gone or are others."""

import socket
from dataclasses import replace

import numpy as np
import pytest

from master.api.identities import (
    Incarnation,
    Lineage,
    MemberName,
    Route,
    ServerPlace,
)
from master.api.messages.from_members import CutRefusal, CutRefused, Held, Restored
from master.api.messages.to_members import Hold, Restore
from tests.integration.trainer_sdk.pserver.in_process_servers import BUCKETS, FIRST, TABLES, batch, span, verdicts
from trainer_sdk.errors import NotReadyError, ServerUnavailableError, TableError
from trainer_sdk.pserver.core.messages import PushVerdict


def test_pushed_gradients_are_in_the_next_pull_exactly_once(new_job):
    """Two servers, three tables; a repeat changes nothing (M1)."""
    job = new_job(2).restore()
    before = job.client.pull(["w"]).tables["w"].copy()
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}
    assert verdicts(job.push(0, 4)) == {(PushVerdict.REPEAT, "0-31")}
    assert job.counts() == [1] * 4 + [0] * 20
    assert job.client.pull(["w"]).tables["w"] == pytest.approx(before - 0.1, abs=1e-5)


def test_push_and_pull_in_one_round_trip_see_the_push(new_job):
    """Frames of one connection are taken in order."""
    job = new_job(2).restore()
    answer, pulled = job.client.push_and_pull(Lineage(1), span(0, 4), batch(np.arange(4)))
    assert verdicts(answer) == {(PushVerdict.APPLIED, "0-31")}
    assert pulled.lineage == 1
    assert pulled.tables["c"].tolist() == [1] * 4 + [0] * 20


def test_push_to_some_buckets_reaches_those_only(new_job):
    """Rule 11: what an OVERLAP misses goes to the buckets that miss it."""
    job = new_job(2).restore()
    assert verdicts(job.push(0, 4, buckets=span(5, 20))) == {(PushVerdict.APPLIED, "5-19")}
    assert verdicts(job.push(0, 4)) == {(PushVerdict.REPEAT, "5-19"), (PushVerdict.APPLIED, "0-4,20-31")}
    assert job.counts() == [1] * 4 + [0] * 20


def test_push_during_a_hold_waits_and_is_applied_when_it_ends(new_job):
    """Rule 19: held, not refused; without CUT the server goes on by itself."""
    job = new_job(1, hold_s=0.25).restore()
    server = job.servers[0]
    for start in range(24):
        server.service.control(Hold(cut=replace(FIRST, sequence=FIRST.sequence + start)))
        server.wait_for(Held, count=start + 1)
        assert verdicts(job.push(start, start + 1)) == {(PushVerdict.APPLIED, "0-31")}
        assert server.wait_for(CutRefused, count=start + 1).reason is CutRefusal.GONE
        if server.service.longest_hold_s:  # else the hold was over before the push had come
            break
    assert server.service.longest_hold_s > 0
    assert job.counts() == [1] * (start + 1) + [0] * (23 - start)


def test_pull_that_mixes_two_lineages_is_not_returned(new_job):
    """Rule 9: one server was rolled back already, the other not yet."""
    job = new_job(2).restore()
    client = job.new_client(budget_s=0.3)
    order = job.orders[0]
    rolled = Restore(**{name: getattr(order, name) for name in order.__dataclass_fields__} | {"lineage": Lineage(2)})
    job.servers[0].said.clear()
    job.servers[0].service.control(rolled)
    job.servers[0].wait_for(Restored)
    with pytest.raises(NotReadyError):
        client.pull()
    assert verdicts(job.push(0, 4)) == {(PushVerdict.STALE_LINEAGE, "0-15"), (PushVerdict.APPLIED, "16-31")}
    client.close()


def test_broken_connection_is_made_again_and_the_same_push_sent(new_job):
    """The answer may be lost, the push not applied twice."""
    job = new_job(2).restore()
    job.push(0, 4)
    for server in job.servers:
        for sock in tuple(server.listener._open):
            sock.shutdown(socket.SHUT_RDWR)
    assert verdicts(job.push(0, 8, buckets=span(0, 1))) == {(PushVerdict.OVERLAP, "0")}
    assert verdicts(job.push(4, 8)) == {(PushVerdict.APPLIED, "0-31")}
    assert job.counts() == [1] * 8 + [0] * 16


def test_server_that_is_gone_is_an_error_within_the_budget(new_job):
    """ServerUnavailableError names it; the trainer then looks for a new route."""
    job = new_job(2).restore()
    client = job.new_client(budget_s=0.3)
    client.pull()
    job.servers[1].listener.close()
    with pytest.raises(ServerUnavailableError):
        client.push(Lineage(1), span(0, 4), batch(np.arange(4)))
    client.close()


def test_another_process_at_the_same_address_is_not_spoken_to(new_job):
    """A server that came back holds another model, or none."""
    job = new_job(1).restore()
    address = job.route.servers[0].address
    place = ServerPlace(name=MemberName("s"), incarnation=Incarnation("before"), address=address, ordinal=0)
    job.client.set_route(
        Route(revision=2, lineage=Lineage(1), servers=(place,), owner=job.route.owner, version=job.route.version),
        TABLES,
        BUCKETS,
    )
    with pytest.raises(ServerUnavailableError, match="another process"):
        job.client.pull()


def test_wrong_arrays_are_refused_before_anything_is_sent(new_job):
    """The message names table and shape."""
    job = new_job(1).restore()
    for wrong in ({"w": np.zeros(3)}, {"c": np.zeros(24)}, {"e": np.zeros(3)}, {"x": 1}, {"e": ([999], [[1, 1, 1]])}):
        with pytest.raises(TableError):
            job.client.push(Lineage(1), span(0, 4), wrong)
    assert job.counts() == [0] * 24
