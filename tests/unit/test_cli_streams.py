"""What others wrote does not move the terminal of who reads it."""

import subprocess
import sys

import pytest

from autoscaler.cli.kube.events import tell_event
from autoscaler.cli.streams import at_rest
from autoscaler.cli.tables import Column, format_table


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
    assert at_rest(written) == shown


def test_a_cell_of_a_table_is_at_rest():
    column = Column(title="REASON", cell=lambda found: found["reason"])
    table = format_table([{"kind": "Job", "reason": "\x1b[31mEvil"}], is_wide=False, columns={"Job": [column]})
    assert table == ["REASON", "\\x1b[31mEvil"]


def test_an_event_is_told_in_one_line_however_it_returns():
    event = {"regarding": {"kind": "TrainingJob", "name": "x"}, "reason": "Evil\r", "note": "hello\x1b[2J"}
    assert at_rest(tell_event(event, 0.0).text).endswith("Evil\\r            hello\\x1b[2J")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_a_command_whose_streams_are_closed_ends_with_its_own_code(tmp_path, closed):
    """It was a traceback of `None.flush`, and exit code 1, whatever had been done."""
    program = "from autoscaler.cli.main import main; main()"
    for arguments, code in ((["version"], 0), (["validate", str(tmp_path / "nowhere.yaml")], 4)):
        command = [sys.executable, "-c", program, *arguments]
        end = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, check=False)
        assert (end.returncode, b"Traceback" in end.stderr) == (code, False)
