"""What a release hands out: `python -m tools.dist` fills `dist/`, `--check` installs that elsewhere and runs it.

    edl-X.tar.gz               source, with all that tests, chart and images are made of; the images' build context
    edl-X-py3-none-any.whl     built from that source: operator, command line, master, trainer SDK and parameter server
    charts/edl-X.tgz           the chart, for `helm install` or `helm push`
    SHA256SUMS                 of these

All is made of what git tracks, as the work tree has it: nothing that only lies about gets in or hides what is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.build import ensure_tools, say_on_stderr
from tests.cluster.families import HELM
from tools.image_requirements import make_files

ROOT: Final = Path(__file__).resolve().parent.parent
STEP_BUDGET_S: Final = 600.0


class DistError(Exception):
    """A step failed; the message has its command and the end of what it wrote."""


def build(target: Path) -> tuple[Path, ...]:
    """Afterwards `target` holds exactly the files of a release, which are returned.

    Raises DistError, and leaves `target` as it was.  Needs git; helm is PATH's, or built into the user's cache.
    """
    helm = ensure_tools(os.environ, say_on_stderr, (HELM,))["helm"]
    epoch = _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()  # setuptools and helm date what they pack by it
    environ = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    with tempfile.TemporaryDirectory(prefix="edl-dist-") as scratch:
        source, made = Path(scratch) / "source", Path(scratch) / "made"
        made.mkdir()
        _copy_tracked(source)
        _call_backend("build_sdist", source, made, environ)
        (archive,) = made.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        _call_backend("build_wheel", Path(scratch) / archive.name.removesuffix(".tar.gz"), made, environ)
        _run([str(helm), "package", str(source / "charts" / "edl"), "-d", str(made / "charts")], source, environ)
        files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
        sums = [f"{hashlib.sha256((made / file).read_bytes()).hexdigest()}  {file}\n" for file in files]
        (made / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    return tuple(target / file for file in (*files, Path("SHA256SUMS")))


def check(target: Path) -> None:
    """Raises DistError unless the wheel in `target` works where nothing else of EDL is.

    Two empty environments, with the pinned packages of the training image and of the operator's: in the first the SDK
    is imported, in the second a job with a parameter server runs to its end under `edl run`.
    """
    (wheel,) = target.glob("*.whl")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory(prefix="edl-dist-check-") as scratch:
        trainer = _environment(Path(scratch) / "trainer", wheel, "image-trainer.txt")
        _run([str(trainer / "python"), "-c", "import trainer_sdk, trainer_sdk.pserver.__main__"], Path(scratch))
        operator = _environment(Path(scratch) / "operator", wheel, "image-operator.txt")
        told = _run([str(operator / "edl"), "--version"], Path(scratch))
        if version not in told:
            raise DistError(f"edl --version says {told.strip()!r} and not {version}")
        place = Path(scratch) / "empty"
        shutil.copytree(ROOT / "examples", place / "examples")
        job = (place / "examples" / "digits.yaml").read_text(encoding="utf-8").replace('"2000"', '"20"')
        (place / "job.yaml").write_text(job, encoding="utf-8")
        path = os.pathsep.join((str(operator), os.environ["PATH"]))
        told = _run([str(operator / "edl"), "run", "job.yaml", "--no-view"], place, {**os.environ, "PATH": path})
        print(*told.splitlines()[-4:], sep="\n")


def _copy_tracked(target: Path) -> None:
    for name in _run(["git", "ls-files", "-z"], ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def _call_backend(hook: str, source: Path, target: Path, environ: dict[str, str]) -> None:
    """Call a hook of the build backend (PEP 517) in `source`, with the pinned packages of this environment."""
    code = f"from setuptools import build_meta; build_meta.{hook}({str(target)!r})"
    _run([sys.executable, "-c", code], source, environ)


def _environment(folder: Path, wheel: Path, requirements: str) -> Path:
    """Make an environment with these requirements and the wheel; returns its folder of programs."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    install = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    lists = make_files(f"{sys.version_info.major}.{sys.version_info.minor}", folder)
    (folder / requirements).write_text(lists[folder / requirements], encoding="utf-8")
    build_tools = str(ROOT / "requirements" / "build.txt")
    _run([*install, "--require-hashes", "--only-binary", ":all:", "-r", build_tools], folder)
    hashed = ["--require-hashes", "--no-build-isolation", "--only-binary", ":all:", "--no-binary", "etcd3"]
    _run([*install, *hashed, "-r", requirements], folder)
    _run([*install, str(wheel)], folder)
    return programs


def _run(command: Sequence[str], folder: Path, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=STEP_BUDGET_S, check=False
    )
    if done.returncode != 0:
        raise DistError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def main() -> int:
    """Build, and check if asked to; prints what was made with its size."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.dist", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="also install the wheel into empty environments and run it"
    )
    arguments = parser.parse_args()
    target = ROOT / "dist"
    try:
        for file in build(target):
            print(f"{file.stat().st_size / 1e6:8.2f} MB  {file.relative_to(ROOT)}")
        if arguments.check:
            check(target)
            print("the wheel works in an environment of its own")
    except DistError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
