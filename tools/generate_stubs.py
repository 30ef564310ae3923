"""Writes the Python stubs of each .proto file next to it: `python tools/generate_stubs.py`.

The stubs are committed, so that installing EDL needs no compiler; run this after a change of a .proto.  `--check`
writes nothing and ends with 1 when the committed stubs are not those of the .proto files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = (
    Path("master/api/edl/master/v1/master.proto"),
    Path("autoscaler/gpus/pods/podresources/v1/podresources.proto"),  # the kubelet's
    Path("tests/e2e/deviceplugin/v1beta1/deviceplugin.proto"),  # the kubelet's, for tests
)


def generate(into: Path) -> Iterator[Path]:
    """The generated files, relative to `into`.  Their imports start at the repository: `master.api.edl...`."""
    from grpc_tools import protoc  # noqa: PLC0415  only this command needs the compiler

    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # the plugins
    outputs = [f"--{plugin}_out={into}" for plugin in ("python", "grpc_python", "mypy", "mypy_grpc")]
    for proto in PROTOS:
        if protoc.main(["protoc", f"--proto_path={ROOT}", *outputs, str(ROOT / proto)]):
            raise SystemExit(f"protoc refused {proto}: see above")
        yield from sorted(path.relative_to(into) for path in (into / proto.parent).glob(f"{proto.stem}_pb2*.py*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare with the committed stubs")
    check_only: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        for name in generate(fresh):
            content = (fresh / name).read_bytes()
            if check_only and (not (ROOT / name).exists() or (ROOT / name).read_bytes() != content):
                raise SystemExit(f"{name} is not what its .proto says: run python tools/generate_stubs.py")
            if not check_only:
                (ROOT / name).write_bytes(content)
                print(f"wrote {name}")


if __name__ == "__main__":
    main()
