"""Places of the cluster's programs: `$KUBEBUILDER_ASSETS`, PATH, or what `build` has put into the user's cache.

Finding builds nothing and takes milliseconds; a program found outside the cache is asked for its version first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.cache import cache_folder
from autoscaler.etcd_server.finder import try_find_etcd
from tests.cluster.families import FAMILIES, VERSION_QUESTIONS, Family, try_parse_version
from tests.harness.errors import ToolsMissingError

ETCD: Final = "etcd"
VERSION_BUDGET_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """All that the cluster is made of."""

    programs: Mapping[str, Path]
    files: Mapping[str, Path]  # taken from the modules, by name

    def __getitem__(self, program: str) -> Path:
        return self.programs[program]


def find_tools(environ: Mapping[str, str], families: Sequence[Family] = FAMILIES) -> Tools:
    """etcd and the families' programs.  Raises ToolsMissingError, which names what is missing."""
    programs: dict[str, Path] = {}
    files: dict[str, Path] = {}
    missing = []
    etcd = try_find_etcd(environ=with_assets(environ))
    if etcd is None:
        missing.append(ETCD)
    else:
        programs[ETCD] = etcd.path
    for family in families:
        built = built_folder(family, environ)
        files.update({name: built / name for name in family.files})
        programs.update({program: built / program for program in family.programs})
        programs.update(find_elsewhere(family, environ))
        missing += [name for name in (*family.programs, *family.files) if not (programs | files)[name].is_file()]
    if missing:
        raise ToolsMissingError(missing)
    return Tools(programs=programs, files=files)


def built_folder(family: Family, environ: Mapping[str, str]) -> Path:
    """Folder of the family's built programs, one for each pin."""
    return cluster_cache(environ) / f"{family.name}-{family.key()}"


def cluster_cache(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ) / "cluster"


def find_elsewhere(family: Family, environ: Mapping[str, str]) -> dict[str, Path]:
    """Programs of the right version that this machine has anyway."""
    path = with_assets(environ).get("PATH")
    found = {program: shutil.which(program, path=path) for program in family.programs}
    return {
        program: Path(where)
        for program, where in found.items()
        if where and family.serves(_ask_version(program, where))
    }


def with_assets(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with `$KUBEBUILDER_ASSETS`, where other Kubernetes projects keep such programs, first on PATH."""
    folders = (environ.get("KUBEBUILDER_ASSETS"), environ.get("PATH"))
    return {**environ, "PATH": os.pathsep.join(folder for folder in folders if folder)}


def _ask_version(program: str, where: str) -> tuple[int, int, int] | None:
    command = [where, *VERSION_QUESTIONS.get(program, ("--version",))]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VERSION_BUDGET_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return try_parse_version(answer.stdout)
