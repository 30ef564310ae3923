"""Carries out the steps of a Dockerfile on a Debian root: each leaves the files that it changed in a folder of its own.

A step's folder is named by all that it depends on: the step before, the instruction, the variables, the bytes copied.
So it is made once, and made again when any of that changes.  RUN runs with the root as its file system and with the
machine's network, as `docker build` would; what pip needs to reach its packages is handed in and not kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from tests.e2e.dockerfiles import Instruction, Stage
from tests.e2e.oci import SEARCH_PATH
from tests.harness.commands import run
from tests.harness.errors import ImageBuildError

RUN_BUDGET_S: Final = 900.0
KEY_LENGTH: Final = 24
REPRODUCIBLE: Final = {"SOURCE_DATE_EPOCH": "315532800", "PYTHONHASHSEED": "0"}  # 1980: the oldest that zip files know
HANDED_IN: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")
HANDED_PREFIXES: Final = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
MACHINE_ONLY: Final = ("PIP_FIND_LINKS", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A root in the making: folders from the lowest up, each with what its step changed."""

    layers: tuple[Path, ...]
    environ: Mapping[str, str]
    folder: str = "/"
    user: str = ""

    @property
    def key(self) -> str:
        """Names all that led here."""
        return self.layers[-1].name


class Steps:
    """`cache` is on a file system that overlays can lie on; `source` holds what COPY copies."""

    def __init__(self, cache: Path, source: Path, environ: Mapping[str, str], say: Say) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._cache = cache
        self._source = source
        self._machine = environ
        self._say = say
        self._stages: dict[str, State] = {}
        self._replaced: Mapping[str, Path] = {}

    def build(self, stages: Iterable[Stage], bases: Mapping[str, Path], replaced: Mapping[str, Path]) -> State:
        """The last stage's state.  `bases` are roots by the name in FROM, `replaced` stands for files of the source."""
        self._stages, self._replaced = {}, replaced
        state = None
        for stage in stages:
            if stage.base not in bases:
                raise ImageBuildError(f"FROM {stage.base}: the builder of the tests has no root for it")
            state = State(layers=(bases[stage.base],), environ={"PATH": SEARCH_PATH})
            for instruction in stage.instructions:
                state = self._carry_out(state, instruction)
            self._stages[stage.name] = state
        assert state is not None
        return state

    def _carry_out(self, state: State, instruction: Instruction) -> State:
        match instruction.word:
            case "ENV":
                values = {
                    name: value.replace("$PATH", state.environ["PATH"])
                    for name, value in instruction.variables().items()
                }
                return replace(state, environ={**state.environ, **values})
            case "WORKDIR":
                return replace(state, folder=str(PurePosixPath(state.folder) / instruction.text))
            case "USER":
                return replace(state, user=instruction.text)
            case "RUN":
                return self._run(state, instruction.text)
            case "COPY":
                return self._copy(state, instruction)
            case _:  # ARG, CMD, ENTRYPOINT: nothing to do here
                return state

    def _run(self, state: State, command: str) -> State:
        key = _key(state.key, state.folder, command, repr(sorted(state.environ.items())))
        return self._made(state, key, f"RUN {command}", lambda upper: self._run_in(state, command, upper))

    def _run_in(self, state: State, command: str, upper: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="run-") as scratch:
            work, root = Path(scratch) / "work", Path(scratch) / "root"
            work.mkdir()
            root.mkdir()
            script = "\n".join([*_mounts(state, upper, work, root), 'exec chroot "$0" /usr/bin/env -i "$@"'])
            variables = {**self._handed_variables(), **REPRODUCIBLE, "HOME": "/root", **state.environ}
            given = [f"{name}={value}" for name, value in variables.items()]
            spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
            inner = ["/bin/sh", "-ec", f"cd {state.folder}\n{command}"]
            run([*spaces, "sh", "-euc", script, str(root), *given, *inner], budget_s=RUN_BUDGET_S)
        _forget(upper)

    def _handed_variables(self) -> dict[str, str]:
        return {
            name: value
            for name, value in self._machine.items()
            if name.startswith(HANDED_PREFIXES) and name not in MACHINE_ONLY
        }

    def _copy(self, state: State, instruction: Instruction) -> State:
        stage, sources, target = instruction.copied()
        if stage:
            return self._copy_stage(state, self._stages[stage], sources, target)
        files = dict(self._files(sources, target))
        key = _key(state.key, *[f"{name} {_digest(path)}" for name, path in sorted(files.items())])

        def lay(upper: Path) -> None:
            for name, path in files.items():
                (upper / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, upper / name)

        return self._made(state, key, f"COPY {instruction.text}", lay)

    def _copy_stage(self, state: State, other: State, sources: Iterable[str], target: str) -> State:
        """One layer for each of the other stage's, so that what seldom changes is a layer of its own."""
        (source,) = sources
        if source != target:
            raise ImageBuildError(f"COPY --from: {source} to {target}: the builder of the tests only copies in place")
        inside = source.strip("/")
        for number, layer in enumerate(other.layers[1:], start=1):
            if not (layer / inside).is_dir():
                continue
            later = other.layers[number + 1 :]
            key = _key(state.key, inside, layer.name, *_names(later, inside))

            def lay(upper: Path, layer: Path = layer, later: tuple[Path, ...] = later) -> None:
                _take(layer, inside, later, upper)

            state = self._made(state, key, f"COPY --from {inside} ({number})", lay)
        return state

    def _files(self, sources: Iterable[str], target: str) -> Iterable[tuple[str, Path]]:
        """Target of each file, without the leading slash, by Docker's rules: a folder gives what it holds."""
        for source in sources:
            path = self._source / source
            goal = PurePosixPath(target.strip("/"))
            if path.is_dir():
                for file in sorted(path.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        yield str(goal / file.relative_to(path).as_posix()), file
            else:
                into = target.endswith("/") or target == "."
                yield str(goal / path.name if into else goal), self._replaced.get(source, path)

    def _made(self, state: State, key: str, what: str, make: Callable[[Path], None]) -> State:
        made = self._cache / key
        if not made.is_dir():
            self._say(what if len(what) < 100 else what[:97] + "...")
            with tempfile.TemporaryDirectory(dir=self._cache, prefix="step-") as scratch:
                upper = Path(scratch) / "upper"
                upper.mkdir()
                make(upper)
                upper.rename(made)
        os.utime(made)  # in use: see `images.py`
        return replace(state, layers=(*state.layers, made))


def _mounts(state: State, upper: Path, work: Path, root: Path) -> list[str]:
    """Shell commands that lay out `root`, which is $0, for one RUN."""
    lower = ":".join(str(layer) for layer in reversed(state.layers))
    commands = [
        f'mount -t overlay overlay -o "lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=off" "$0"',
        *[f'mkdir -p "$0/{name}"' for name in ("proc", "dev", "tmp", "root")],
        'mount -t proc proc "$0/proc"',
        'mount --rbind /dev "$0/dev"',
        'mount -t tmpfs tmpfs "$0/tmp"',
    ]
    for path in HANDED_IN:
        if Path(path).is_dir():
            commands += [f'mkdir -p "$0{path}"', f'mount --bind {path} "$0{path}"']
        elif Path(path).exists():
            commands += [f'mkdir -p "$0{Path(path).parent}"', f'touch "$0{path}"', f'mount --bind {path} "$0{path}"']
    return commands


def _forget(upper: Path) -> None:
    """Removes what was only there for the sake of a RUN."""
    for path in HANDED_IN:
        left = upper / path.lstrip("/")
        if left.is_dir():
            left.rmdir()
        else:
            left.unlink(missing_ok=True)


def _names(layers: Iterable[Path], inside: str) -> list[str]:
    """Names that these layers set or delete: they hide those of the layers below."""
    found = {path.relative_to(layer).as_posix() for layer in layers for path in (layer / inside).rglob("*")}
    return sorted(found)


def _take(layer: Path, inside: str, later: tuple[Path, ...], upper: Path) -> None:
    """Copies what is in `layer` and still to be seen through the layers after it."""
    for folder, names, files in os.walk(layer / inside):
        at = Path(folder).relative_to(layer)
        (upper / at).mkdir(parents=True, exist_ok=True)
        names[:] = [name for name in names if not _is_hidden(at / name, later)]
        for name in (*files, *[name for name in names if (Path(folder) / name).is_symlink()]):
            source = Path(folder) / name
            if not any(os.path.lexists(above / at / name) for above in later) and not _is_whiteout(source):
                shutil.copy2(source, upper / at / name, follow_symlinks=False)


def _is_hidden(path: Path, later: tuple[Path, ...]) -> bool:
    """A later layer removed the folder, or put another in its place."""
    return any(
        _is_whiteout(above / path) or "trusted.overlay.opaque" in _attributes(above / path)
        for above in later
        if os.path.lexists(above / path)
    )


def _attributes(path: Path) -> list[str]:
    return os.listxattr(path, follow_symlinks=False)


def _is_whiteout(path: Path) -> bool:
    """True if the file is an overlayfs whiteout (a deletion)."""
    return path.is_char_device() and path.stat().st_rdev == 0


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:KEY_LENGTH]


def _digest(path: Path) -> str:
    executable = os.access(path, os.X_OK)
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()} {executable}"
