"""How often a member that does not stay up is started again, and what is told of its end."""

import pytest

from autoscaler.etcd_server.etcd_members import without_stacks
from autoscaler.etcd_server.serve import restart_pause_s


@pytest.mark.parametrize(("quick_ends", "pause_s"), [(0, 0), (2, 0), (3, 1), (4, 2), (7, 16), (8, 30), (10_000, 30)])
def test_pauses_grow_to_a_bound(quick_ends, pause_s):
    """A kill is followed at once; a full disk is not hammered five times a second."""
    assert restart_pause_s(quick_ends) == pause_s


def test_the_last_words_of_a_member_are_its_reason_and_not_the_stack_of_its_panic():
    """On a full disk the user read eight lines of Go's stack, and no word of the disk."""
    reason = '{"level":"panic","msg":"failed to create WAL","error":"no space left on device"}'
    stack = ["panic: failed to create WAL", "", "goroutine 1 [running]:", "go.uber.org/zap(0x1)", "\tzap.go:196 +0x54"]
    assert without_stacks([reason, *stack]) == [reason, stack[0]]
    assert without_stacks([reason, *stack, '{"level":"warn"}', "main.go"]) == [
        reason,
        stack[0],
        '{"level":"warn"}',
        "main.go",
    ]
