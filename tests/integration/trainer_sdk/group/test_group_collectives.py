"""Connections of a process's generations: what becomes of an attempt is always told."""

import queue
from dataclasses import replace

import pytest

from master.group.membership import LOADING_NS
from master.job.domain.durable_records import SECOND
from tests.harness.lone_member import INCARNATION, generation
from trainer_sdk.collective import CollectiveListener
from trainer_sdk.errors import CollectiveStalled
from trainer_sdk.group.collectives import IDLE_S, GroupCollectives
from trainer_sdk.transport.security import Security


def test_unexpected_error_of_an_attempt_is_a_failure_with_its_text(tmp_path, capsys):
    """Rule 73: a member that said nothing would keep its group waiting; its own user reads why."""
    tmp_path.chmod(0o700)
    groups = GroupCollectives(CollectiveListener(f"unix:{tmp_path}", Security(token=b"secret"), INCARNATION))
    told: queue.Queue[tuple[str, int]] = queue.Queue()
    try:
        for _ in range(2):  # the second attempt is a mistake of this process: the key is in use
            groups.connect(
                generation(1).record,
                INCARNATION,
                connected=lambda number: told.put(("connected", number)),
                failed=lambda number: told.put(("failed", number)),
            )
            outcome = told.get(timeout=30)
        assert outcome == ("failed", 1)
        assert "edl: generation 1 could not be connected: UsageError: group 1-1 is" in capsys.readouterr().err
    finally:
        groups.close()


def test_wait_that_nobody_ends_has_a_bound_above_all_that_the_master_allows(tmp_path, capsys):
    """Rule 74: its user reads who was waited for, and a bound that was too short is twice as long the next time."""
    assert LOADING_NS / SECOND < IDLE_S
    tmp_path.chmod(0o700)
    record = generation(1).record
    names = ("process-0", "process-1")
    listeners = [CollectiveListener(f"unix:{tmp_path}", Security(token=b"secret"), one) for one in names]
    members = tuple(
        replace(record.members[0], name=f"trainer-{place}", incarnation=one, address=listeners[place].address)
        for place, one in enumerate(names)
    )
    record, told = replace(record, members=members), queue.Queue()
    both = [GroupCollectives(one) for one in listeners]
    try:
        for groups, name in zip(both, names, strict=True):
            groups.idle_s = 0.2
            groups.connect(record, name, connected=told.put, failed=lambda _: told.put("failed"))
        assert [told.get(timeout=30) for _ in both] == [1, 1]
        with pytest.raises(CollectiveStalled):
            both[0].get(1).barrier()
        for groups in both:
            groups.abort(1, "the generation was left")
        said = capsys.readouterr().err
        assert said.count("edl: generation 1") == 1
        assert f"waited for trainer-1 at {members[1].address};" in said
        assert [groups.idle_s for groups in both] == [0.4, 0.2]
    finally:
        for groups in both:
            groups.close()
