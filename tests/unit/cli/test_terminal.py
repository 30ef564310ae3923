"""What others wrote does not move the terminal of who reads it."""

import logging
import subprocess
import sys

import pytest

from autoscaler.cli.kubernetes.cluster_events import format_cluster_event
from autoscaler.cli.output.object_tables import Column, format_table
from autoscaler.cli.terminal import EscapeFilter
from master.api.host.log_lines import PlainFormatter, escape_controls


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("Übung 世界\n\tnext", "Übung 世界\n\tnext"),
    ],
)
def test_escape_codes_are_shown_and_not_obeyed(written, shown):
    assert escape_controls(written) == shown


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["\x1b[31mred\x1b[0m\n"], "\x1b[31mred\x1b[0m\n"),
        (["\x1b[2J\x1b]0;owned\x07"], "\\x1b[2J\\x1b]0;owned\\x07"),
        (["\x1b[", "31mred"], "\x1b[31mred"),
        (["\x1b", "[2J"], "\\x1b[2J"),
        (["10 %\r", "\n20 %\rdone\r\n"], "10 %\n20 %\ndone\n"),
        (["ends in \x1b[3"], "ends in \\x1b[3"),
        (["\x9b2J", "\x1b[" + "1" * 40], "\\x9b2J\\x1b[" + "1" * 40),
    ],
)
def test_a_pods_output_keeps_its_colours_and_moves_no_terminal(pieces, shown):
    """However its escape codes are cut into pieces; the terminal has its own colours again at the end."""
    calm = EscapeFilter()
    assert "".join(map(calm.filter, pieces)) + calm.flush() == shown + "\x1b[0m"


def test_a_record_of_a_log_forges_no_other():
    """Its further lines, those of a story too, do not begin at the margin."""
    told = "peer\n2026-11-22T00:00:00.000Z INFO master: all is well\x1b[2J"
    record = logging.LogRecord("master", logging.INFO, "", 0, "%s", (told,), None)
    first, *rest = PlainFormatter().format(record).split("\n")
    assert first.endswith("INFO master: peer")
    assert rest == ["    2026-11-22T00:00:00.000Z INFO master: all is well\\x1b[2J"]


def test_a_cell_of_a_table_is_escaped():
    column = Column(title="REASON", cell=lambda found: found["reason"])
    table = format_table([{"kind": "Job", "reason": "\x1b[31mEvil"}], is_wide=False, columns={"Job": [column]})
    assert table == ["REASON", "\\x1b[31mEvil"]


def test_an_event_is_told_in_one_line_however_it_returns():
    event = {"regarding": {"kind": "TrainingJob", "name": "x"}, "reason": "Evil\r", "note": "hello\x1b[2J"}
    assert escape_controls(format_cluster_event(event, 0.0).text).endswith("Evil\\r            hello\\x1b[2J")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_command_whose_streams_are_closed_ends_with_its_own_code(tmp_path, closed):
    """It was a traceback (flush of None), and exit code 1, whatever had been done."""
    program = "from autoscaler.cli.main import main; main()"
    for arguments, code in ((["version"], 0), (["validate", str(tmp_path / "nowhere.yaml")], 4)):
        command = [sys.executable, "-c", program, *arguments]
        end = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, check=False)
        assert (end.returncode, b"Traceback" in end.stderr) == (code, False)
