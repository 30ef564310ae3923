"""The list of commands in `edl --help`: under headings by subject, with one short line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

CommandSection = Mapping[click.Command, str]
"""Commands and the line about each; in a terminal of 80 columns 62 characters stay on one line."""


class SectionedGroup(click.Group):
    """A click.Group that lists its commands under headings, in the order in which they are given.

    The lines are also what shells show beside the commands that they complete.
    """

    def __init__(self, *, sections: Mapping[str, CommandSection], **settings: Any) -> None:
        super().__init__(**settings)
        self._sections = sections
        for section in sections.values():
            for command, line in section.items():
                command.short_help = line
                self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, with all lines in one column."""
        del ctx
        width = max(len(name) for name in self.commands)
        for heading, section in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(str(command.name).ljust(width), line) for command, line in section.items()])
