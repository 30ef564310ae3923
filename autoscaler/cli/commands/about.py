"""`edl version`, and `edl completion`, which prints a shell's completion script."""

from __future__ import annotations

import os
import platform
from typing import Final

import click

from master.api.host.log_lines import escape_controls

COMPLETION_VARIABLE: Final = "_EDL_COMPLETE"
"""Environment variable with which a shell's completion script requests completions."""

_PACKAGES: Final = ("edl", "grpcio", "protobuf", "numpy", "click", "rich", "pydantic")


@click.command()
def version() -> None:
    """Print the versions of EDL and its dependencies."""
    print(escape_controls("\n".join(list_versions())))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell, to be read where the shell starts.

    \b
    eval "$(edl completion bash)"    in ~/.bashrc
    eval "$(edl completion zsh)"     in ~/.zshrc, after compinit
    edl completion fish | source     in ~/.config/fish/config.fish
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - rarely needed

    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None
    print(escape_controls(kind(root, {}, "edl", COMPLETION_VARIABLE).source()))


def list_versions() -> list[str]:
    """Lines about this machine and the packages that EDL depends on."""
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415 - not for --help
    from importlib.metadata import version as version_of  # noqa: PLC0415

    lines = [f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores"]
    for package in _PACKAGES:
        try:
            lines.append(f"{package} {version_of(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} is not installed")
    return lines
