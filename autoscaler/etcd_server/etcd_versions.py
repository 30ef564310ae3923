"""Versions of etcd without known loss of acknowledged writes.  Pure.

3.5.0 to 3.5.2 can lose committed data when killed under load (etcd issue 13766); 3.4 before 3.4.20 lacks fixes of the
same kind.  So those serve only a demo of one member that nobody kills.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

VERSION_LINE: Final = re.compile(r"etcd Version: (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class EtcdVersion:
    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def keeps_promises(self) -> bool:
        """True from 3.4.20 of 3.4 on, and from 3.5.3 on."""
        return FIRST_GOOD_3_4 <= self < FIRST_3_5 or self >= FIRST_GOOD_3_5


FIRST_GOOD_3_4: Final = EtcdVersion(3, 4, 20)
FIRST_3_5: Final = EtcdVersion(3, 5, 0)
FIRST_GOOD_3_5: Final = EtcdVersion(3, 5, 3)
PINNED: Final = EtcdVersion(3, 6, 16)  # of tools/etcd/go.mod
DEMO: Final = EtcdVersion(3, 5, 1)  # of requirements/etcd.txt


def try_parse_version(output: str) -> EtcdVersion | None:
    """Version in the output of `etcd --version`; None: it has none."""
    match = VERSION_LINE.search(output)
    return EtcdVersion(*(int(part) for part in match.groups())) if match else None
