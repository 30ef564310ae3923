"""`make install` takes what the lock names, and nothing else."""

import re
from pathlib import Path

MAKEFILE = Path("Makefile").read_text()
INSTALLS = re.findall(r"\$\(PIP\) install .*", MAKEFILE)


def test_no_installation_resolves_dependencies():
    """pip 23, which Python 3.11 brings, takes a newer coverage for coverage[toml] than is pinned."""
    assert len(INSTALLS) == 4
    for command in INSTALLS:
        assert "--no-deps" in command
        assert "--require-hashes" in command or command.endswith("-e .")


def test_an_installation_is_checked_for_what_the_lock_lacks():
    assert "$(PIP) check" in MAKEFILE
