"""After a loss the others keep what they have, where the job says so (rule 30, ADR 0317)."""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import Ack
from master.api.messages.to_members import AskMarks, Fenced, KeptBuckets, Restore, Wait
from master.api.positions import EMPTY, PositionSet, union
from master.job.domain.durable_records import LineageRecord
from master.job.domain.job_config import AfterLoss, JobConfig
from master.job.domain.job_events import CommitDue, OwnersWaitEnded, ReconnectWindowEnded, StreamBroken
from master.job.state.protocol_state import CommitPhase, RecoveryStage
from tests.unit.master.job.driver import key, run_servers, serving
from tests.unit.master.job.test_quarantine import FRONT, fail_at_the_front
from tests.unit.master.job.test_scaling import grown

T0 = key("t0")
KEEPING = JobConfig(servers=2, bucket_count=4, after_loss=AfterLoss.KEEP)


def train(driver, servers, request):
    (lease,) = driver.leases(T0, request)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    return lease.positions


def to(driver, member, kind):
    return [message for recipient, message in driver.sent if recipient == member and isinstance(message, kind)]


def trained(config=KEEPING):
    """One lease in the last checkpoint, one acked after it."""
    driver, servers = serving(config)
    first = train(driver, servers, 1)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    return driver, servers, first, train(driver, servers, 2)


def test_a_survivor_keeps_what_it_has_and_only_the_lost_comes_from_head():
    """Rule 30: the table of the lineage before says whose it was, at which version."""
    driver, servers, first, second = trained()
    servers[0].restart()
    survivor, restarted = (to(driver, server.key, Restore)[-1] for server in (servers[1], servers[0]))
    assert survivor.kept == (KeptBuckets(lineage=1, version=0, buckets=servers[1].buckets),)
    assert restarted.kept == ()
    run_servers(driver, servers)
    assert driver.state.stage is RecoveryStage.SERVING
    assert servers[0].applied == driver.head.data == first
    assert servers[1].applied == first | second
    assert driver.durable.lineage == LineageRecord(number=2, base=driver.head.id)
    assert isinstance(to(driver, T0, Fenced)[-1], Fenced), "M9: fenced, not restarted"


def test_what_the_lost_server_had_not_committed_is_granted_again():
    """Rules 17, 29: DONE is what all buckets have, whatever was acked."""
    driver, servers, _, second = trained()
    servers[0].restart()
    run_servers(driver, servers)
    assert driver.state.dispatch.done == EMPTY
    assert second <= driver.state.dispatch.todo


def test_marks_are_read_before_anything_is_granted():
    """They differ, and a SKIP may be half done."""
    driver, servers, *_ = trained()
    servers[0].restart()
    for server in servers:
        driver.send(server.key, server.answer(to(driver, server.key, Restore)[-1]))
    assert driver.state.stage is RecoveryStage.READING_MARKS
    assert all(to(driver, server.key, AskMarks)[-1].lineage == 2 for server in servers)
    driver.trainer("t0", declares=None)
    assert isinstance(driver.acquire(T0, 3), Wait)


def test_the_next_checkpoint_holds_everything_once_all_buckets_have_it():
    """Rules 19 to 22: D is the union, what is missing is leased first, the files are equal again."""
    driver, servers, first, second = trained()
    servers[0].restart()
    run_servers(driver, servers)
    driver.trainer("t0", declares=None)
    again = train(driver, servers[:1], 3)
    assert again == second
    driver.fire(CommitDue)
    assert driver.state.commit.phase is CommitPhase.HOLDING
    run_servers(driver, servers)
    assert driver.head.data == first | second
    assert driver.head.lineage == 2


def test_the_default_is_that_everybody_goes_back():
    """Rule 26."""
    driver, servers, first, _ = trained(JobConfig(servers=2, bucket_count=4))
    servers[0].restart()
    assert not to(driver, servers[1].key, Restore)[-1].kept
    run_servers(driver, servers)
    assert [server.applied for server in servers] == [first] * 2


def test_a_second_loss_meanwhile_keeps_what_was_kept():
    """Rule 28, by the table that servers were told last."""
    driver, servers, first, second = trained(JobConfig(servers=3, bucket_count=6, after_loss=AfterLoss.KEEP))
    servers[0].restart()
    for server in servers[1:]:
        driver.send(server.key, server.answer(to(driver, server.key, Restore)[-1]))
        server.inbox = [message for recipient, message in driver.sent if recipient == server.key]
    servers[1].restart()
    assert [kept.lineage for kept in to(driver, servers[2].key, Restore)[-1].kept] == [2]
    run_servers(driver, servers)
    assert driver.state.number == 3
    assert servers[2].applied == first | second
    assert servers[1].applied == first


def test_a_second_loss_before_anybody_was_told_keeps_by_the_table_before():
    """The raise that came to nothing was told to nobody."""
    driver, servers, first, second = trained(JobConfig(servers=3, bucket_count=6, after_loss=AfterLoss.KEEP))
    driver.writes_go_through = False
    servers[0].restart()
    servers[1].restart()
    driver.let_go()
    run_servers(driver, servers)
    assert driver.state.number == 3
    assert driver.state.stage is RecoveryStage.SERVING
    assert servers[2].applied == first | second
    assert servers[1].applied == servers[0].applied == first


def test_a_new_master_that_finds_a_server_lost_lets_the_others_keep_too():
    """Rules 17, 30: the table is durable."""
    driver, servers, first, second = trained()
    driver.start()
    servers[0].restart()
    servers[1].register()
    run_servers(driver, servers)
    assert driver.state.number == 2
    assert servers[1].applied == first | second


def test_buckets_that_disagree_about_a_skip_roll_back_all_the_same():
    """Rule 31: what half of the buckets have applied cannot be left out of them otherwise."""
    driver, servers = serving(KEEPING)
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    servers[0].applied |= FRONT
    run_servers(driver, servers)
    assert driver.durable.lineage == LineageRecord(number=2, base=None, quarantine=FRONT)
    assert all(server.skipped == FRONT and not server.applied for server in servers)
    assert all(not order.kept for server in servers for order in to(driver, server.key, Restore))


def test_a_skip_that_was_half_done_when_a_server_was_lost_is_finished():
    """Rules 30, 31: what was kept skips already what no bucket is to apply."""
    driver, servers, *_ = trained()
    out = PositionSet.span(150, 160)
    servers[1].skipped |= out
    servers[0].restart()
    run_servers(driver, servers)
    assert driver.durable.lineage.quarantine == out
    assert [server.skipped for server in servers] == [out, out]
    assert driver.state.number == 2


def test_a_model_that_lacks_what_head_has_is_not_kept_once_more():
    """Rule 30 is for losses; whatever else is wrong goes back to head."""
    driver, servers, first, _ = trained()
    servers[0].restart()
    servers[1].applied -= first  # no server does that
    run_servers(driver, servers)
    assert driver.state.number == 3
    assert driver.state.stage is RecoveryStage.SERVING
    assert [server.applied for server in servers] == [first] * 2


def test_what_others_get_besides_comes_from_head():
    """Rule 56: nobody comes in the place of the lost one; each keeps its own and reads what is new to it."""
    driver, servers = grown(serving(replace(KEEPING, max_servers=3, bucket_count=12)), 3)
    lost = servers.pop(1).buckets
    driver.feed(StreamBroken(member=key("s1")))
    driver.fire(ReconnectWindowEnded)
    driver.fire(OwnersWaitEnded)
    for server in servers:
        order = to(driver, server.key, Restore)[-1]
        assert union(kept.buckets for kept in order.kept) == server.buckets
        assert order.buckets - server.buckets <= lost
    assert union(to(driver, server.key, Restore)[-1].buckets for server in servers) == PositionSet.span(0, 12)
