"""A script that runs alone finds in its master's log why nothing is committed."""

from master.api.host.log_lines import HEAD_WAITS
from trainer_sdk.runtime.standalone import WAITING_COMMIT


def test_the_reason_is_found_in_the_line_that_a_master_logs():
    """Master and script share the form of the line, so that a change of its words reaches both (ADR 0216)."""
    line = HEAD_WAITS % ("000002-0000000007-000003-5f3a9c21", "two jobs write into file:///x: give each a folder")

    assert WAITING_COMMIT.findall(f"2026-01-01 WARNING master.durable.head_file: {line}\nanother line\n") == [
        "two jobs write into file:///x: give each a folder"
    ]
