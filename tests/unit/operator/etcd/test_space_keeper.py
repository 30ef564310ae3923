"""When etcd fills, and who took too much of it."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.names import store_name
from autoscaler.errors import InvalidSpecError
from autoscaler.operator.etcd.job_accounts import ADMIN_PASSWORD_FILE, ADMIN_USER, MANAGES_SPACE, read_account_settings
from autoscaler.operator.etcd.space_keeper import (
    FREE_KEYS,
    KEYS_OF_A_JOB,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_KEYS,
    are_many,
    is_defragmentation_due,
    is_filling,
    jobs_above_rate,
    jobs_above_size,
    may_disarm,
    most_bytes,
    most_written,
)
from master.store.etcd.etcd_upkeep import EtcdSize, JobFootprint
from master.store.job_keys import JobKeys
from master.store.store_port import MAX_VALUE_BYTES
from tests.unit.operator.bench import JOB
from tests.unit.operator.term import Term

QUOTA = 1000


def size(used, file, *, is_full=False, quota=QUOTA):
    return EtcdSize(used_bytes=used, file_bytes=file, quota_bytes=quota, is_full=is_full)


@pytest.mark.parametrize(
    ("now", "pressed", "defragment", "disarm"),
    [
        (size(249, 499), False, False, False),
        (size(250, 250), True, False, False),
        (size(10, 500), True, True, False),
        (size(250, 500), True, True, False),
        (size(251, 500), True, False, False),
        (size(990, 990, is_full=True), True, False, False),
        (size(10, 990, is_full=True), True, True, False),
        (size(600, 1000, is_full=True), True, True, False),
        (size(600, 600, is_full=True), True, False, True),
        (size(10, 10, is_full=True), True, False, True),
    ],
)
def test_etcd_is_looked_at_before_it_is_full(now, pressed, defragment, disarm):
    assert (is_filling(now), is_defragmentation_due(now), may_disarm(now)) == (pressed, defragment, disarm)


def test_more_keys_than_masters_write_are_looked_at():
    """However many jobs there are; what masters write is below."""
    assert len(JobKeys("a").known) < KEYS_OF_A_JOB < MOST_KEYS
    assert [are_many(FREE_KEYS + more, jobs=1) for more in (0, 1)] == [False, True]
    assert [are_many(1000 * KEYS_OF_A_JOB + more, jobs=1000) for more in (0, 1)] == [False, True]


def test_all_jobs_together_have_half_of_the_quota_at_most():
    """As long as a master's own keys have room; a master's largest are below the bound where jobs are few."""
    quota = 2 * 1024**3
    assert most_bytes(size(0, 0, quota=quota), 0) == MOST_BYTES > len(JobKeys("a").known) * MAX_VALUE_BYTES
    assert most_bytes(size(0, 0, quota=quota), 1024) * 1024 == quota // 2
    assert most_bytes(size(0, 0, quota=quota), 100_000) == LEAST_BYTES > MAX_VALUE_BYTES
    assert most_written(size(0, 0, quota=quota)) == 32 * 1024**2


def test_only_who_is_over_its_bounds_is_named_with_its_numbers():
    standing = {
        "at": JobFootprint(keys=MOST_KEYS, stored_bytes=100),
        "many": JobFootprint(keys=MOST_KEYS + 1, stored_bytes=1),
        "large": JobFootprint(keys=1, stored_bytes=101),
    }
    over = jobs_above_size(standing, most_bytes=100)
    assert set(over) == {"many", "large"}
    assert "101 bytes" in over["large"]
    assert set(jobs_above_rate({"at": 100, "fast": 101}, most_bytes=100)) == {"fast"}


def test_every_key_of_a_job_is_known():
    """A key that is not in the list would be deleted with what a hostile job left."""
    keys = JobKeys("a.b.01234567")
    named = {name for name, one in vars(JobKeys).items() if isinstance(one, property)} - {"known", "prefix"}
    assert set(keys.known) == {getattr(keys, name) for name in named}
    assert list(keys.known) == sorted(keys.known)


def test_room_is_kept_only_by_who_makes_users(tmp_path):
    (tmp_path / "password").write_text("x")
    environ = {"EDL_ETCD_ENDPOINTS": "https://etcd", MANAGES_SPACE: "true"}
    admin = {ADMIN_USER: "root", ADMIN_PASSWORD_FILE: str(tmp_path / "password")}
    assert read_account_settings(environ | admin).manages_space
    for wrong in (environ, environ | admin | {MANAGES_SPACE: "yes"}):
        with pytest.raises(InvalidSpecError) as refusal:
            read_account_settings(wrong)
        assert refusal.value.path == MANAGES_SPACE


async def test_a_fault_in_giving_up_a_barred_job_is_its_jobs_alone(monkeypatch):
    """Whoever looks at etcd goes on for the others, and so does the term (A11)."""

    def fail(job, reason):
        raise ZeroDivisionError

    term = Term()
    await term.step(12)
    uid = term.server.get(TRAINING_JOBS, "team-a", "digits")["metadata"]["uid"]
    monkeypatch.setattr(term.leading.store, "handle", fail)
    term.leading.store.fail_over_etcd(store_name("team-a", "digits", uid), "9 bytes written")
    assert "life: ZeroDivisionError" in term.leading.errors.problem(JOB)


async def test_a_barred_job_fails_and_says_why():
    """With a condition of its own and an event; a job made again under the name is another one."""
    term = Term()
    await term.step(12)
    uid = term.server.get(TRAINING_JOBS, "team-a", "digits")["metadata"]["uid"]
    term.leading.store.fail_over_etcd("team-a.digits.ffffffff", "9 bytes written")
    await term.step(2)
    assert term.told("Failed") == ("False", "NotFailed")
    term.leading.store.fail_over_etcd(store_name("team-a", "digits", uid), "9 bytes written")
    await term.step(5)
    assert term.told("Failed") == ("True", "EtcdBoundExceeded")
    assert any("9 bytes written" in note for _, note in term.notes())
