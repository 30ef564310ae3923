"""Handover from the start of a run into its namespaces: what was built before it entered them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.etcd_members import DIE_WITH_PARENT
from tests.e2e.images import Built

RUN: Final = "EDL_E2E_RUN"
ARCHIVE: Final = "EDL_E2E_IMAGES"
SYSTEM: Final = "EDL_E2E_SYSTEM"
LINTER: Final = "EDL_E2E_LINTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    run: str  # unlike any other run's
    images: Built
    linter: Path  # of Dockerfiles

    def variables(self) -> dict[str, str]:
        images = {ARCHIVE: str(self.images.archive), SYSTEM: str(self.images.system)}
        return {RUN: self.run, LINTER: str(self.linter), **images}


def enter_command(command: Sequence[str]) -> list[str]:
    """`command` as the first process of fresh namespaces, which end with it; and it ends with the caller."""
    spaces = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
    prefix = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())]
    return [*prefix, "/usr/bin/env", "unshare", *spaces, *command]


def try_find(environ: Mapping[str, str]) -> Surroundings | None:
    """None outside: then no real node can be started."""
    if RUN not in environ or os.getpid() != 1:
        return None
    images = Built(archive=Path(environ[ARCHIVE]), system=Path(environ[SYSTEM]))
    return Surroundings(run=environ[RUN], images=images, linter=Path(environ[LINTER]))
