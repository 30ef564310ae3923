"""What a pod writes as one long line is read in a time that grows with the line, not with its square."""

import io
import logging
import signal

import pytest

from autoscaler.cli.commands.redaction import Redactor
from autoscaler.cli.terminal import EscapeFilter
from master.api.host.log_lines import PlainFormatter

LINE_BYTES = 1 << 18
CPU_BUDGET_S = 3  # four times what the worst takes on a busy machine; a square of it takes 48 s for a megabyte


@pytest.fixture(autouse=True)
def _limited():
    """More CPU time than this ends the test: the load of the machine does not count."""

    def end(_number, _frame):
        raise AssertionError("the effort grows faster than the line")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_BUDGET_S)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def line_of(repeated):
    return repeated * (LINE_BYTES // len(repeated)) + "!"


@pytest.mark.parametrize("begin", ["", 'token="'])
@pytest.mark.parametrize(
    "repeated",
    [
        "aGVsbG8", "aGVsbG8/", "abcdefghijk", "a=a=a=", ":", '"', "'", 'token="', "token='ab ", 'token=\\"', "\\",
        "=\\", " ", "= ", "_TOKEN=", "token_", "aa://", "abcdefghijklmnopqrstu://u:", "basic ", "bearer a",
        "-----BEGIN ", "-----BEGIN A", "<redacted ", "--password ", "--password abcd ", "-a", "name value ",
        "name a value ", "eyJabcdefgh.", "eyJ", "sk-", "ghp_", "https://abcdefghijklmnop", "authorization ", "%3D", "https://a:",
    ],
)  # fmt: skip
def test_secrets_are_looked_for_in_steps_that_grow_with_the_line(begin, repeated):
    """`edl bundle` of a run whose pod wrote base64 without line ends would have taken hours."""
    line = (begin + line_of(repeated)).encode()
    assert b"".join(Redactor({"DB": "hunter2hunter2"}).redacted(io.BytesIO(line), "log"))


@pytest.mark.parametrize("repeated", ["\x1b", "\x1b[", "\x1b[1;", "\x1b[m", "\r", "\x9b", "\n", "1;", " "])
def test_a_terminal_and_a_log_take_a_long_line_in_steps_that_grow_with_it(repeated):
    calm, line = EscapeFilter(), line_of(repeated)
    assert calm.filter(line) + calm.flush()
    assert PlainFormatter().format(logging.LogRecord("master", logging.INFO, "", 0, "%s", (line,), None))
