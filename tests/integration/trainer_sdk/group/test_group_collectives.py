"""Connections of a process's generations: what becomes of an attempt is always told."""

import queue

from tests.harness.lone_member import INCARNATION, generation
from trainer_sdk.collective import CollectiveListener
from trainer_sdk.group.collectives import GroupCollectives
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
