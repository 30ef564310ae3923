"""`edl --help`: a reader in a terminal of 80 columns sees each sentence whole."""

import re

import click
import pytest
from click.testing import CliRunner

from autoscaler.cli.main import SECTIONS, edl

COLUMNS = 80


def groups(command=edl, path=()):
    yield path, command
    for name, below in command.commands.items():
        if isinstance(below, click.Group):
            yield from groups(below, (*path, name))


def help_of(*words):
    done = CliRunner().invoke(edl, [*words, "--help"], terminal_width=COLUMNS)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


@pytest.mark.parametrize("path", [path for path, _ in groups()], ids=lambda path: " ".join(("edl", *path)))
def test_a_list_of_commands_cuts_no_sentence(path):
    """Nor does any line run over, as one that is kept as it is may."""
    lines = help_of(*path)
    assert [line for line in lines[1:] if line.endswith("...")] == []
    assert [line for line in lines if len(line) > COLUMNS] == []


def test_every_command_stands_under_one_heading():
    """On a line of its own; nothing that can be called is left out."""
    listed = [command.name for section in SECTIONS.values() for command in section]
    assert sorted(listed) == sorted(edl.commands)
    lines = help_of()
    for name in listed:
        assert len([line for line in lines if line.startswith(f"  {name} ")]) == 1
    assert all(f"{heading}:" in lines for heading in SECTIONS)


@pytest.mark.parametrize("name", sorted(edl.commands))
def test_a_commands_help_shows_examples_that_fit(name):
    """A newcomer copies a line from it; it is not wrapped, so it has to be short enough."""
    lines = help_of(name)
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert name in {"version", "data"} or [line for line in lines if re.search(rf"^ .*edl {name}\b", line)]
