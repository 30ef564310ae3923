"""When a run in the foreground has a page: where a terminal is attached, unless somebody says otherwise."""

import io
import sys

import pytest

from autoscaler.cli.local.foreground_command import RunOutput, choose_page


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("output", "has_terminal", "is_wanted", "port", "chosen"),
    [
        (RunOutput.VIEW, True, None, None, 0),
        (RunOutput.LINES, True, None, None, 0),
        (RunOutput.LINES, False, None, None, None),
        (RunOutput.JSON, True, None, None, None),  # a program reads it
        (RunOutput.JSON, False, True, None, 0),
        (RunOutput.LINES, False, True, None, 0),
        (RunOutput.LINES, False, None, 8080, 8080),
        (RunOutput.VIEW, True, False, None, None),
        (RunOutput.VIEW, True, False, 8080, None),
    ],
)
def test_a_page_is_there_by_default_where_a_terminal_is(monkeypatch, output, has_terminal, is_wanted, port, chosen):
    monkeypatch.setattr(sys, "stdout", Terminal() if has_terminal else io.StringIO())
    assert choose_page(is_wanted=is_wanted, port=port, output=output) == chosen
