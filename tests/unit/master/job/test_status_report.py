"""What a master tells of its job (`status_report`), whole and moment by moment."""

from dataclasses import replace

from master import job
from master.api.identities import MemberRole
from master.api.master_status import EpochStatus, FailureStatus, JobPhase, JobStatus, MemberStatus, PositionCounts
from master.api.messages.from_members import Ack, Leave, Progress
from master.api.positions import EMPTY
from master.job.domain.durable_records import SECOND, Instant
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import CommitDue, StreamBroken
from tests.unit.master.job.driver import Driver, key, run_servers, serving
from tests.unit.master.job.test_quarantine import FRONT, fail_at_the_front

T0 = key("t0")


def trained(driver, servers, request):
    (lease,) = driver.leases(T0, request)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))


def test_a_job_in_the_middle_of_its_second_epoch():
    """Every number of the status, with a checkpoint, work since, work on lease and a server that is away."""
    driver, servers = serving()
    for request in (1, 2):  # 40 each of the first epoch's 100
        trained(driver, servers, request)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    for request in (3, 4):  # its other 20, and 40 of the second
        trained(driver, servers, request)
    driver.leases(T0, 5)
    driver.send(T0, Progress(steps=16, samples_per_s=12.5, metrics={"loss": 0.25}, waiting_share=0.5))
    driver.feed(StreamBroken(member=servers[1].key))
    blank = MemberStatus(
        name=T0.name, role=MemberRole.SERVER, ordinal=0, is_connected=True, is_serving=True, leased=0, steps=0,
        samples_per_s=0.0, metrics={}, buckets=2,
    )  # fmt: skip
    state = driver.state
    assert job.status(state, Instant(driver.now + 5 * SECOND)) == JobStatus(
        phase=JobPhase.TRAINING,
        problem="",
        checkpoint_problem="",
        store_problem="",
        moves_problem="",
        term=1,
        lineage=state.number,
        head=driver.head.id,
        checkpoint_age_s=5.0,
        epochs=2,
        epoch_size=100,
        positions=PositionCounts(
            total=200, todo=30, leased=30, done=60, skipping=0, committed=80, quarantined=0
        ),
        per_epoch=(
            EpochStatus(epoch=0, committed=80, done=20, quarantined=0),
            EpochStatus(epoch=1, committed=0, done=40, quarantined=0),
        ),
        epochs_committed=0,
        quarantine=EMPTY,
        reworked=0,
        members=(
            replace(
                blank, role=MemberRole.TRAINER, leased=30, steps=16, samples_per_s=12.5, metrics={"loss": 0.25},
                buckets=0, waiting_share=0.5,
            ),
            replace(blank, name=servers[0].key.name),
            replace(blank, name=servers[1].key.name, ordinal=1, is_connected=False, is_serving=False),
        ),
        servers=1,
        servers_wanted=2,
        servers_max=2,
        moving=0,
        waiting_to_move=0,
        copies=1,
        single_copies=0,
        failures=(),
        failures_in_a_row=0,
    )  # fmt: skip


def test_an_epoch_that_is_committed_whole_is_told_as_such():
    """From there on epochs are told one by one; what was never reached is not."""
    driver, servers = serving()
    for request in (1, 2, 3):
        trained(driver, servers, request)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    told = job.status(driver.state, driver.now)
    assert (told.epochs_committed, told.per_epoch) == (1, ())
    driver.leases(T0, 4)
    told = job.status(driver.state, driver.now)
    assert (told.epochs_committed, told.per_epoch) == (1, (EpochStatus(epoch=1, committed=0, done=0, quarantined=0),))


def test_failures_and_what_they_lead_to_are_told():
    """Who failed, when, with what in flight; in the end it is quarantined, and an epoch is whole without it."""
    driver = Driver(JobConfig(servers=0)).start()
    driver.trainer("t9")
    for process in (1, 2, 3):
        driver.now = Instant(process * SECOND)
        fail_at_the_front(driver, process)
    told = job.status(driver.state, Instant(10 * SECOND))
    assert told.quarantine == FRONT
    assert told.positions.quarantined == len(FRONT)
    assert told.per_epoch[0].quarantined == len(FRONT)
    assert told.failures == tuple(
        FailureStatus(member=key("t5").name, age_s=age_s, positions=FRONT, message="ValueError: bad record")
        for age_s in (9.0, 8.0, 7.0)
    )
    assert told.failures_in_a_row == 0, "another trainer completes batches between them"
    assert (told.servers, told.servers_max, told.epochs_committed) == (0, 0, 0)


def test_a_job_that_shares_out_records_only_says_that_no_model_is_kept():
    """As soon as that is declared; nobody should learn it from an empty folder."""
    driver = Driver(JobConfig(servers=0)).start()
    assert job.status(driver.state, driver.now).is_model_kept, "nothing is declared yet"
    driver.trainer("t9")
    assert not job.status(driver.state, driver.now).is_model_kept
    with_servers, _ = serving()
    assert job.status(with_servers.state, with_servers.now).is_model_kept


def test_trainer_that_was_heard_is_told_after_it_has_left():
    """An operator judges by it the end of a script that may never have used EDL."""
    driver = Driver(JobConfig(servers=0)).start()
    assert not job.status(driver.state, driver.now).has_heard_trainers
    driver.trainer("t9", declares=None)
    assert job.status(driver.state, driver.now).has_heard_trainers
    driver.send(key("t9"), Leave())
    told = job.status(driver.state, driver.now)
    assert (told.members, told.has_heard_trainers) == ((), True)


def test_ages_are_of_the_past():
    """A clock that is behind by a moment makes no negative age."""
    driver = Driver(JobConfig(servers=0), now=Instant(SECOND)).start()
    driver.trainer("t9")
    fail_at_the_front(driver, 1)
    assert job.status(driver.state, Instant(0)).failures[0].age_s == 0.0
