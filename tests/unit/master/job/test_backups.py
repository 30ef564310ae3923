"""Buckets that have two copies: PROMOTE, ALONE, new backups, and what a new master does (rules 61, 62; ADR 0318)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.messages.from_members import ServerLeaving
from master.api.messages.to_members import Activate, AskMarks, Fenced, Freeze, Released, Restore, RouteChanged, Skip
from master.api.positions import EMPTY, PositionSet, union
from master.job import deadlines
from master.job.domain.durable_records import SECOND, Instant, LineageRecord
from master.job.domain.job_config import AfterLoss
from master.job.domain.job_events import AnswersOverdue, CommitDue, OwnersWaitEnded, ReconnectWindowEnded, StreamBroken
from master.job.state.protocol_state import RecoveryStage
from tests.unit.master.job.driver import run_servers
from tests.unit.master.job.moving import T0, carry, owners, to, train
from tests.unit.master.job.pairs import PAIRED, THREE, Paired, backups, lose, paired, single_copies
from tests.unit.master.job.test_quarantine import FRONT, fail_at_the_front

ALL = PositionSet.span(0, 4)


def is_window(event):
    return isinstance(event, ReconnectWindowEnded)


def window_s(driver):
    (at,) = (at for at, event in deadlines(driver.state) if isinstance(event, ReconnectWindowEnded))
    return (at - driver.now) / SECOND


def new_master(driver, servers=()):
    """It hears the trainer, and of the servers these."""
    driver.start()
    driver.trainer("t0", declares=None)
    for server in servers:
        server.register()


def test_every_bucket_of_a_new_job_is_on_two_servers():
    """Both are told at once, and both read the same base (rule 61)."""
    driver, servers = paired()
    assert owners(driver) == ["s0", "s0", "s1", "s1"]
    assert backups(driver) == ["s1", "s1", "s0", "s0"]
    for server, other in zip(servers, reversed(servers), strict=True):
        (order,) = to(driver, server.key, Restore)
        assert (order.buckets, order.standby) == (server.buckets, other.buckets)
        assert [(one.buckets, one.backup.incarnation) for one in order.backed] == [
            (server.buckets, other.key.incarnation)
        ]
    assert driver.durable.backups == driver.state.backups


def test_a_lost_server_costs_a_promotion_and_the_other_goes_on_alone():
    """One change of the table for all its buckets; nothing is rolled back, nobody is fenced (rule 62)."""
    driver, servers = paired()
    fenced = len(to(driver, T0, Fenced))
    driver.feed(StreamBroken(member=servers[0].key))
    assert window_s(driver) == 0.5, "nothing is lost by being wrong"
    driver.fire(ReconnectWindowEnded)
    assert owners(driver) == ["s1"] * 4
    assert backups(driver) == [""] * 4
    assert driver.durable.route.version == (1, 1, 1, 1)
    assert (driver.state.number, driver.state.stage, len(to(driver, T0, Fenced))) == (1, RecoveryStage.SERVING, fenced)
    assert to(driver, T0, RouteChanged)[-1].route == driver.durable.route
    assert all(order.backup is None for order in to(driver, servers[1].key, Activate))
    assert single_copies(driver) == 4
    assert dict(driver.state.promotions) == {1: 2}


def test_a_server_that_has_the_only_copy_is_waited_for():
    """Ten seconds, as where there are no second copies (rule 18), and then it is a loss."""
    driver, servers = paired()
    lose(driver, servers, 0)
    driver.feed(StreamBroken(member=servers[1].key))
    assert window_s(driver) == 10.0
    driver.fire(ReconnectWindowEnded)
    assert driver.state.stage is RecoveryStage.GATHERING
    for server in servers:
        server.restart()
    run_servers(driver, servers)
    assert driver.durable.lineage == LineageRecord(number=2, base=None)
    assert single_copies(driver) == 0


def test_while_the_master_cannot_be_reached_nobody_is_given_up_for_another_that_cannot_either():
    """All streams break together, and all are back a second later: nothing is lost, and no copy is made anew."""
    driver, servers = paired(THREE)
    before = driver.durable
    for server in servers:
        driver.feed(StreamBroken(member=server.key))
    assert all(at - driver.now == 10 * SECOND for at, one in deadlines(driver.state) if is_window(one))
    driver.now = Instant(driver.now + SECOND)
    for server in servers:
        server.register()
    run_servers(driver, servers)
    assert (driver.durable, driver.state.stage) == (before, RecoveryStage.SERVING)


def test_one_that_does_not_come_back_with_the_others_is_given_up_at_once():
    """From then on they have what it had: how long a server is waited for is asked of the state as it is."""
    driver, servers = paired(THREE)
    for server in servers:
        driver.feed(StreamBroken(member=server.key))
    driver.now = Instant(driver.now + SECOND)
    for server in servers[1:]:
        server.register()
    assert [driver.now - at for at, one in deadlines(driver.state) if is_window(one)] == [SECOND // 2]
    driver.fire(ReconnectWindowEnded)
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 1)
    assert "s0" not in {*owners(driver), *backups(driver)}


def test_once_all_buckets_have_two_copies_again_the_next_loss_costs_a_promotion_too():
    """The successor gets its share and the second copies of the rest, by moves."""
    driver, servers = paired()
    lose(driver, servers, 0)
    for lost in (1, 0, 1):
        servers[1 - lost].restart()
        carry(driver, servers)
        assert (sorted(owners(driver)), single_copies(driver)) == (["s0", "s0", "s1", "s1"], 0)
        lose(driver, servers, lost)
        assert set(owners(driver)) == {f"s{1 - lost}"}
    assert driver.state.number == 1
    assert dict(driver.state.promotions) == {0: 2}, "whoever was lost counts anew: it would be told twice"


def test_a_bucket_that_moves_with_its_only_copy_leaves_the_second_where_it_was():
    """What was handed over is frozen there, so it equals what is served: nothing is copied twice (rules 38, 62)."""
    driver, servers = paired()
    left = lose(driver, servers, 0)
    servers[0].restart()
    run_servers(driver, servers)
    moved = {intent.bucket for intent in driver.state.moves.intents if intent.bucket not in driver.state.backups.wanted}
    carry(driver, servers)
    assert single_copies(driver) == 0
    arrived = [bucket for bucket in range(4) if owners(driver)[bucket] == "s0"]
    assert moved <= set(arrived)
    assert {backups(driver)[bucket] for bucket in arrived} == {left[0].key.name}
    frozen = [order.bucket for order in to(driver, left[0].key, Freeze)]
    assert sorted(frozen) == [0, 1, 2, 3], "each is sent once"


def test_new_backups_begin_with_the_change_that_leaves_buckets_alone():
    """With a third server nobody has to come first."""
    driver, servers = paired(THREE)
    left = lose(driver, servers, 0)
    assert single_copies(driver) == len(driver.state.moves.intents) + len(driver.state.moves.waiting) > 0
    assert driver.state.moves.intents, "some are on their way already"
    carry(driver, left)
    assert single_copies(driver) == 0
    lose(driver, left, 1)
    assert (set(owners(driver)), driver.state.number) == ({"s2"}, 1)


def test_with_both_copies_gone_the_job_rolls_back():
    """Rule 62; buckets are on two servers again at once, for both read the base."""
    driver, servers = paired(THREE)
    driver.feed(StreamBroken(member=servers[0].key))
    driver.feed(StreamBroken(member=servers[1].key))
    driver.fire(ReconnectWindowEnded)
    driver.fire(ReconnectWindowEnded)
    for server in servers[:2]:
        server.restart()
    run_servers(driver, servers)
    assert (driver.state.number, driver.state.stage, single_copies(driver)) == (2, RecoveryStage.SERVING, 0)


def test_where_the_others_keep_what_they_have_a_kept_bucket_gets_its_second_copy_by_a_move():
    """Rule 30: whoever reads the base would be behind its owner (rule 61)."""
    driver, servers = paired(replace(THREE, after_loss=AfterLoss.KEEP))
    first = train(driver, servers)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    second = train(driver, servers, 2)
    kept = servers[2].buckets
    for server in servers[:2]:
        driver.feed(StreamBroken(member=server.key))
    for _ in servers[:2]:
        driver.fire(ReconnectWindowEnded)
    for server in servers[:2]:
        server.restart()
    run_servers(driver, servers)
    assert driver.state.number == 2
    order = to(driver, servers[2].key, Restore)[-1]
    assert [one.buckets for one in order.kept] == [kept]
    assert all(one.buckets.isdisjoint(kept) for one in order.backed)
    assert all(to(driver, server.key, Restore)[-1].standby.isdisjoint(kept) for server in servers)
    assert [server.applied for server in servers] == [first, first, first | second]
    carry(driver, servers)
    assert single_copies(driver) == 0


def test_a_server_that_has_to_go_takes_no_second_copies_with_it():
    """Its buckets and its second copies go to the others, and then it is released (rule 49)."""
    driver, servers = paired(THREE)
    driver.send(servers[0].key, ServerLeaving(reason="drained"))
    carry(driver, servers)
    assert "s0" not in {*owners(driver), *backups(driver)}
    assert (single_copies(driver), driver.state.number) == (0, 1)


def test_of_the_last_two_servers_one_may_go_and_leaves_the_other_alone():
    """There is nobody to take second copies (ADR 0318)."""
    driver, servers = paired(replace(PAIRED, servers=1, max_servers=2))
    driver.want(2)
    servers.append(Paired(driver, 1))
    servers[1].register()
    carry(driver, servers)
    assert single_copies(driver) == 0
    driver.want(1)
    carry(driver, servers)
    assert (set(owners(driver)), single_copies(driver), driver.state.number) == ({"s0"}, 4, 1)


@pytest.mark.parametrize("goes", ["leaves", "is not wanted"])
def test_the_copy_of_a_server_that_is_not_heard_is_not_given_up_by_the_one_that_goes(goes):
    """The one that stays is killed just before: the other has everything, and gives it to the process that follows."""
    driver, servers = paired(replace(PAIRED, max_servers=2))
    driver.feed(StreamBroken(member=servers[0].key))
    if goes == "leaves":
        driver.send(servers[1].key, ServerLeaving(reason="scaled down"))
    else:
        driver.want(1)
    assert single_copies(driver) == 0
    servers[0].restart()
    carry(driver, servers)
    assert (driver.state.number, driver.state.stage) == (1, RecoveryStage.SERVING), "nobody goes back"
    assert set(owners(driver)) == {"s0"}
    assert to(driver, servers[1].key, Released)


def test_of_two_that_go_the_second_copies_stay_until_their_owners_have_moved():
    """One of them is killed on the way: what it had yet to give away goes on at the other (rule 62)."""
    driver, servers = paired(THREE)
    both = [bucket for bucket in range(6) if "s0" not in {owners(driver)[bucket], backups(driver)[bucket]}]
    assert both, "some bucket is on the two that go alone"
    driver.want(1)
    assert all(backups(driver)[bucket] for bucket in both)
    left = lose(driver, servers, 2)
    carry(driver, left)
    assert (driver.state.number, set(owners(driver)), single_copies(driver)) == (1, {"s0"}, 6)


def test_when_the_one_that_stays_is_heard_again_the_other_may_go():
    """Its stream was broken for a moment."""
    driver, servers = paired(replace(PAIRED, max_servers=2))
    driver.feed(StreamBroken(member=servers[0].key))
    driver.send(servers[1].key, ServerLeaving(reason="scaled down"))
    servers[0].register()
    carry(driver, servers)
    assert (driver.state.number, set(owners(driver)), single_copies(driver)) == (1, {"s0"}, 4)
    assert to(driver, servers[1].key, Released)


def test_a_job_with_one_server_has_one_copy_until_another_comes():
    """Two copies need two servers."""
    driver, servers = paired(replace(PAIRED, servers=1, max_servers=2))
    assert (backups(driver), single_copies(driver)) == ([""] * 4, 4)
    driver.want(2)
    servers.append(Paired(driver, 1))
    servers[1].register()
    carry(driver, servers)
    assert (sorted(owners(driver)), single_copies(driver)) == (["s0", "s0", "s1", "s1"], 0)


def test_a_new_master_promotes_for_an_owner_that_does_not_come_back():
    """After seconds, not after a roll-back; then marks are read of the owners as they are now (rules 17, 62)."""
    driver, servers = paired()
    done = train(driver, servers)
    new_master(driver)
    servers[1].register()
    assert driver.state.stage is RecoveryStage.GATHERING, "it may still come"
    driver.fire(OwnersWaitEnded)
    run_servers(driver, servers[1:])
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 1)
    assert (owners(driver), single_copies(driver)) == (["s1"] * 4, 4)
    assert driver.state.dispatch.committed == done  # a new master commits first


def test_a_new_master_promotes_at_once_where_another_process_came_in_place_of_an_owner():
    """Nobody is left to be waited for, and nothing is lost: that all ordinals are taken is no reason to roll back."""
    driver, servers = paired()
    done = train(driver, servers)
    new_master(driver)
    servers[0].restart()
    servers[1].register()
    run_servers(driver, servers)
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 1)
    assert driver.state.dispatch.committed == done
    carry(driver, servers)
    assert (sorted(owners(driver)), single_copies(driver)) == (["s0", "s0", "s1", "s1"], 0)


def test_a_new_master_waits_for_the_others_from_the_first_server_on():
    """All may be long in reaching it: nobody is given up for having come second, and no copy is made anew."""
    driver, servers = paired()
    before = driver.durable
    new_master(driver)
    for _ in range(3):
        driver.now = Instant(driver.now + 4 * SECOND)
        driver.fire(OwnersWaitEnded)
    servers[1].register()
    assert [at - driver.now for at, one in deadlines(driver.state) if isinstance(one, OwnersWaitEnded)] == [4 * SECOND]
    servers[0].register()
    run_servers(driver, servers)
    assert (driver.state.stage, driver.durable) == (RecoveryStage.SERVING, before)


def test_a_new_master_knows_where_second_copies_are_and_loses_nothing_with_one_of_them():
    """They are durable; a backup is told again at which version it stands."""
    driver, servers = paired()
    new_master(driver, servers)
    run_servers(driver, servers)
    assert (driver.state.stage, single_copies(driver)) == (RecoveryStage.SERVING, 0)
    driver.fire(AnswersOverdue)
    run_servers(driver, servers)
    assert not driver.state.moves.unready_backups, "they have said so"
    lose(driver, servers, 1)
    assert (owners(driver), driver.state.number) == (["s0"] * 4, 1)


def test_a_new_master_tells_each_server_at_once_what_it_is_the_backup_of():
    """The one before may have died with the order unsaid, and pushes wait for backups (rules 27, 61)."""
    driver, servers = paired()
    before = [len(to(driver, server.key, Activate)) for server in servers]
    new_master(driver, servers)
    for server, count in zip(servers, before, strict=True):
        told = to(driver, server.key, Activate)[count:]
        assert union(order.buckets for order in told if order.is_backup) == server.standby


def test_a_server_that_dies_before_the_others_have_come_to_a_new_master_costs_no_roll_back():
    """Who is not here yet may still come with what it had (rule 62)."""
    driver, servers = paired(THREE)
    new_master(driver)
    servers[0].register()
    servers[0].restart()
    for server in servers[1:]:
        server.register()
    carry(driver, servers)
    assert (driver.state.stage, driver.state.number, single_copies(driver)) == (RecoveryStage.SERVING, 1, 0)


def test_a_server_that_has_nothing_may_go_before_the_others_have_come_to_a_new_master():
    """Rule 49."""
    driver, servers = paired(replace(THREE, max_servers=4))
    driver.want(4)
    new_master(driver)
    spare = Paired(driver, 3)
    spare.register()
    lose(driver, [spare], 3)
    for server in servers:
        server.register()
    run_servers(driver, servers)
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.SERVING, 1)


def test_both_servers_of_a_bucket_that_die_under_a_new_master_are_a_loss():
    """Other processes have come in their places: nobody waits for them."""
    driver, servers = paired()
    new_master(driver)
    for server in servers:
        server.register()
        server.restart()
    run_servers(driver, servers)
    assert (driver.state.stage, driver.state.number, single_copies(driver)) == (RecoveryStage.SERVING, 2, 0)


def test_the_only_copies_that_can_still_come_are_a_loss_when_they_go():
    """The other server of theirs is another process by now: nobody waits for what nobody has (rules 26, 62)."""
    driver, servers = paired(THREE)
    new_master(driver)
    servers[1].restart()
    servers[0].register()
    driver.feed(StreamBroken(member=servers[0].key))
    driver.fire(ReconnectWindowEnded)
    assert OwnersWaitEnded not in driver.pending()
    servers[0].restart()
    servers[2].register()
    run_servers(driver, servers)
    assert (driver.state.stage, driver.state.number, single_copies(driver)) == (RecoveryStage.SERVING, 2, 0)


def test_a_backup_that_has_not_said_that_it_is_ready_is_asked_until_it_has():
    """Pushes to what it is the backup of wait for it (rule 61)."""
    driver, servers = paired()
    new_master(driver, servers)
    run_servers(driver, servers)
    driver.fire(AnswersOverdue)
    asked = len(to(driver, servers[1].key, Activate))
    assert driver.state.moves.unready_backups, "its answer was lost"
    driver.fire(AnswersOverdue)
    assert len(to(driver, servers[1].key, Activate)) == asked + 1


def test_an_owner_lost_while_marks_are_read_costs_a_promotion_too():
    """Marks are asked again, of the owners as they are then."""
    driver, servers = paired()
    new_master(driver, servers)
    run_servers(driver, servers[1:])
    assert driver.state.stage is RecoveryStage.READING_MARKS
    lose(driver, servers, 0)
    assert (driver.state.stage, owners(driver), driver.state.number) == (RecoveryStage.SERVING, ["s1"] * 4, 1)
    assert len(to(driver, servers[1].key, AskMarks)) == 2


def asked_anew():
    """Server 1 had been asked for its marks before it owned everything, and its answer comes only now."""
    driver, servers = paired()
    done = train(driver, servers)
    new_master(driver, servers)
    late = servers[1].answer(AskMarks(lineage=driver.state.number))
    driver.feed(StreamBroken(member=servers[0].key))
    driver.fire(ReconnectWindowEnded)
    assert (driver.state.stage, owners(driver)) == (RecoveryStage.READING_MARKS, ["s1"] * 4)
    driver.send(servers[1].key, late)
    return driver, servers[1], done, late


def test_marks_that_were_asked_for_before_a_promotion_cost_no_roll_back():
    """They lack what the server owns since then, and what it has now it says too (rule 62)."""
    driver, heir, done, _ = asked_anew()
    assert driver.state.stage is RecoveryStage.READING_MARKS
    run_servers(driver, [heir])
    assert (driver.state.stage, driver.state.number, driver.state.dispatch.committed) == (
        RecoveryStage.SERVING,
        1,
        done,
    )


def test_an_heir_that_lacks_its_buckets_when_it_is_asked_again_costs_one():
    """Then it is no old answer: the buckets are lost."""
    driver, heir, _, late = asked_anew()
    driver.fire(AnswersOverdue)
    driver.send(heir.key, late)
    assert (driver.state.stage, driver.state.number) == (RecoveryStage.RESTORING, 2)


def test_a_backup_skips_after_its_owner():
    """What it skips first its owner could not apply any more, and nobody would see it (rules 31, 61)."""
    driver, servers = paired()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    assert [order.of_backups for server in servers for order in to(driver, server.key, Skip)] == [False, False]
    for server in servers:
        driver.send(server.key, server.answer(to(driver, server.key, Skip)[0]))
    assert driver.durable.lineage.quarantine == EMPTY, "the backups have not"
    for server in servers:
        order = next(order for order in to(driver, server.key, Skip) if order.of_backups)
        driver.send(server.key, server.answer(order))
    assert driver.durable.lineage == LineageRecord(number=1, base=None, quarantine=FRONT)


def test_what_a_promoted_backup_has_not_skipped_is_asked_of_it_as_the_owner():
    """A version's end makes its answers void (rules 60, 62)."""
    driver, servers = paired()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    driver.send(servers[0].key, servers[0].answer(to(driver, servers[0].key, Skip)[-1]))
    left = lose(driver, servers, 0)
    assert driver.durable.lineage == LineageRecord(number=1, base=None, quarantine=FRONT)
    assert left[0].skipped == FRONT
