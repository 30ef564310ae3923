"""The images that the real nodes run, and the root file system of the nodes themselves.

Those of EDL are built by their own Dockerfiles of `images/`, step by step, on a root of Debian's Python instead of the
official Python image; the others are Debian's packages, or a program that the test cluster has anyway.  All lie in one
archive, so that layers which several share are there once.  What has been made is kept by what it was made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.cache import exclusive
from tests.cluster.toolbox import Tools, cluster_cache
from tests.e2e.debian import Debian
from tests.e2e.dockerfiles import Stage, parse
from tests.e2e.node_files import PAUSE_IMAGE
from tests.e2e.oci import Image, Layer, write_archive
from tests.e2e.steps import REPRODUCIBLE, State, Steps
from tests.e2e.trees import Tree, file, folder, link, read_folder, sha256_of, unpack, write_tar
from tests.harness.commands import run
from tests.harness.errors import ImageBuildError

CHECKOUT: Final = Path(__file__).resolve().parents[2]
VERSION: Final = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
OWN: Final = ("operator", "master", "trainer")
NAMES: Final[Mapping[str, str]] = {
    **{name: f"registry.example/edl/{name}:{VERSION}" for name in (*OWN, "etcd")},
    **{name: f"localhost/edl/{name}:e2e" for name in ("busybox", "nginx", "coredns")},
    "pause": PAUSE_IMAGE,
}
PYTHON_BASES: Final = ("python:3.12-slim-bookworm",)
LOCK_BUDGET_S: Final = 1800.0
UNUSED_S: Final = 24 * 3600.0
KEPT_ARCHIVES: Final = 2  # another run may still be reading the last one
USERS: Final = {"root": 0, "www-data": 33, "nginx": 101, "edl": 65532, "nobody": 65534}
NGINX: Final = """\
pid /tmp/nginx.pid;
error_log /dev/stderr;
events {}
http {
  access_log off;
  client_body_temp_path /tmp/body;
  proxy_temp_path /tmp/proxy;
  fastcgi_temp_path /tmp/fastcgi;
  uwsgi_temp_path /tmp/uwsgi;
  scgi_temp_path /tmp/scgi;
  server {
    listen 8080;
    default_type text/plain;
    location / { return 200 "$hostname\\n"; }
  }
}
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What the nodes need: images to import, and the folder that is their own file system."""

    archive: Path
    system: Path


def build_images(tools: Tools, environ: Mapping[str, str], say: Say) -> Built:
    """Build the archive with all images of NAMES.  As root.  Raises ImageBuildError or ProgramError."""
    cache = cluster_cache(environ) / "images"
    with exclusive(cache, say, budget_s=LOCK_BUDGET_S):
        return _Workshop(cache, tools, environ, say).build()


class _Workshop:
    def __init__(self, cache: Path, tools: Tools, environ: Mapping[str, str], say: Say) -> None:
        for name in ("layers", "roots", "requirements"):
            (cache / name).mkdir(parents=True, exist_ok=True)
        self._cache = cache
        self._tools = tools
        self._say = say
        self._environ = environ
        self._debian = Debian(cache / "debian", environ, say)
        self._builder = _digest_of(Path(__file__).with_name(name) for name in ("trees.py", "debian.py"))
        self._used: set[Path] = set()

    def build(self) -> Built:
        system = self._packages("containerd", "containernetworking-plugins", "mount", "nftables", "runc", shell=True)
        images = [*self._own_images(), *self._other_images()]
        digest = hashlib.sha256(repr((images, self._builder)).encode()).hexdigest()[:16]
        archive = self._cache / f"images-{digest}.tar"
        if not archive.exists():
            self._say(f"writing {len(images)} images")
            with _scratch(self._cache) as made:
                write_archive(images, made / "archive", machine=os.uname().machine)
                (made / "archive").rename(archive)
        built = Built(archive=archive, system=self._root(system))
        os.utime(archive)
        self._prune()
        return built

    def _prune(self) -> None:
        """Removes what no build has used for a while: each change of the code leaves a layer and an archive behind."""
        oldest_s = time.time() - UNUSED_S
        for entry in itertools.chain(*[(self._cache / name).iterdir() for name in ("layers", "roots", "steps")]):
            if entry.stat().st_mtime < oldest_s:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        archives = sorted(self._cache.glob("images-*.tar"), key=lambda archive: archive.stat().st_mtime)
        for archive in archives[:-KEPT_ARCHIVES]:
            archive.unlink()

    def _own_images(self) -> Iterable[Image]:
        base = self._python()
        root = self._root(base)
        version = (root / "usr/bin/python3").readlink().name.removeprefix("python")
        requirements = self._requirements(version)
        steps = Steps(self._cache / "steps", CHECKOUT, self._environ, self._say)
        for name in OWN:
            stages = parse((CHECKOUT / f"images/{name}.Dockerfile").read_text())
            state = steps.build(stages, dict.fromkeys(PYTHON_BASES, root), requirements)
            yield _configured(NAMES[name], stages[-1], state, (base, *map(self._step_layer, state.layers[1:])))

    def _other_images(self) -> Iterable[Image]:
        nginx = self._packages("nginx", more={"etc/nginx/nginx.conf": file(NGINX)})
        start = ("nginx", "-e", "/dev/stderr", "-g", "daemon off;")
        shell = self._packages("busybox-static", shell=True)
        yield Image(name=NAMES["nginx"], layers=(nginx,), command=start, user="101")
        yield Image(name=NAMES["busybox"], layers=(shell,), command=("sh",))
        yield Image(name=NAMES["pause"], layers=(self._packages("catatonit"),), entrypoint=("/usr/bin/catatonit", "-P"))
        etcd = (shell, self._program("etcd"), self._program("etcdctl"))
        yield Image(name=NAMES["etcd"], layers=etcd, command=("etcd",), user="65532")
        yield Image(name=NAMES["coredns"], layers=(self._program("coredns"),), entrypoint=("/usr/local/bin/coredns",))

    def _python(self) -> Layer:
        """Debian's Python in the place of the official image's: `python`, `pip` by way of venv, and a shell."""
        names = ("libstdc++6", "python3", "python3-venv")
        return self._packages(*names, shell=True, more={"usr/bin/python": link("python3")}, finish=_compile)

    def _requirements(self, python: str) -> dict[str, Path]:
        """What the images install, for this Python, in the place of what they install for their own."""
        made = self._cache / "requirements"
        run([sys.executable, str(CHECKOUT / "tools/image_requirements.py"), "--python", python, "--into", str(made)])
        return {f"requirements/{path.name}": path for path in made.iterdir()}

    def _packages(
        self, *names: str, shell: bool = False, more: Tree | None = None, finish: Callable[[Path], None] | None = None
    ) -> Layer:
        """Packages of Debian with what they need and, if asked for, busybox for whatever command they lack."""
        wanted = (*names, "busybox-static") if shell else names
        key = _key(
            *self._debian.resolve(wanted), repr((more, shell, finish and finish.__name__, _furniture())), self._builder
        )

        def make() -> Tree:
            tree = _furniture() | self._debian.fetch(wanted) | (more or {})
            if shell:
                tree |= {path: entry for path, entry in _applets(tree).items() if path not in tree}
            return tree if finish is None else self._finished(tree, finish)

        return self._layer(key, make)

    def _finished(self, tree: Tree, finish: Callable[[Path], None]) -> Tree:
        """The tree after `finish` has worked on it as a folder."""
        with _scratch(self._cache) as made:
            write_tar(tree, made / "tar")
            unpack(made / "tar", made / "root")
            finish(made / "root")
            return tree | {path: entry for path, entry in read_folder(made / "root").items() if path not in tree}

    def _program(self, name: str) -> Layer:
        program = self._tools[name]
        key = _key(sha256_of(program), self._builder)
        return self._layer(
            key, lambda: {f"usr/local/bin/{name}": file(program.read_bytes(), mode=0o755)} | _furniture()
        )

    def _step_layer(self, made: Path) -> Layer:
        return self._layer(made.name, lambda: read_folder(made))

    def _layer(self, key: str, make: Callable[[], Tree]) -> Layer:
        target = self._cache / "layers" / f"{key}.tar"
        digest = target.with_suffix(".sha256")
        if not digest.exists():
            with _scratch(self._cache) as made:
                written = write_tar(make(), made / "tar")
                (made / "tar").rename(target)
            digest.write_text(written)
        os.utime(target)
        os.utime(digest)
        return Layer(path=target, sha256=digest.read_text())

    def _root(self, layer: Layer) -> Path:
        """The layer as a folder."""
        root = self._cache / "roots" / layer.path.stem
        if not root.is_dir():
            with _scratch(self._cache) as made:
                unpack(layer.path, made / "root")
                (made / "root").rename(root)
        os.utime(root)
        return root


def _configured(name: str, stage: Stage, state: State, layers: tuple[Layer, ...]) -> Image:
    command, entrypoint = stage.last("CMD"), stage.last("ENTRYPOINT")
    return Image(
        name=name,
        layers=layers,
        entrypoint=entrypoint.list() if entrypoint else (),
        command=command.list() if command else (),
        user=state.user,
        folder=state.folder,
        environ=state.environ,
    )


def _furniture() -> Tree:
    """What installing the packages would have made: users, and a place for temporary files."""
    users = "".join(f"{name}:x:{number}:{number}::/tmp:/bin/sh\n" for name, number in USERS.items())
    groups = "".join(f"{name}:x:{number}:\n" for name, number in USERS.items())
    return {
        "etc/passwd": file(users),
        "etc/group": file(groups),
        "etc/hosts": file("127.0.0.1 localhost\n"),
        "etc/resolv.conf": file(""),
        "etc/nsswitch.conf": file("hosts: files dns\npasswd: files\ngroup: files\n"),
        "tmp": folder(mode=0o1777),
        "root": folder(mode=0o700),
    }


def _applets(tree: Tree) -> Tree:
    """A link for each command that busybox knows."""
    program = tree["usr/bin/busybox"].data
    if program is None:
        raise ImageBuildError("the package busybox-static has no usr/bin/busybox")
    with tempfile.TemporaryDirectory() as scratch:
        busybox = Path(scratch) / "busybox"
        busybox.write_bytes(program)
        busybox.chmod(0o755)
        names = run([str(busybox), "--list"]).split()
    return {f"usr/bin/{name}": link("busybox") for name in names}


def _compile(root: Path) -> None:
    """Python's own library, compiled as installing its package would have done, but by content instead of time."""
    library = next((root / "usr/lib").glob("python3.*"))
    command = ["chroot", str(root), "/usr/bin/python3", "-m", "compileall", "-q", f"/usr/lib/{library.name}"]
    subprocess.run(command, env={**REPRODUCIBLE, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, check=True)


@contextlib.contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=cache, prefix="scratch-") as made:
        yield Path(made)


def _digest_of(paths: Iterable[Path]) -> str:
    return _key(*[sha256_of(path) for path in paths])


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
