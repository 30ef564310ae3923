"""Only importer of the `etcd3` package: its generated gRPC stubs, rebuilt for current protobuf.

The package's `*_pb2.py` files were generated for protobuf 3 and no longer import.  But they contain their serialized
descriptors.  Those are read out of the source, put into a pool of their own (so that `rpc.proto` clashes with
nobody's), and made into message classes under the modules' own names; then `rpc_pb2_grpc.py` loads unchanged.
Its client is not used: it renews no token, its watches die with their connection, its lock is broken.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor

from master.errors import PermanentError

PACKAGE: Final = "etcd3.etcdrpc"
FILES: Final = ("kv", "auth", "rpc")  # in the order of their imports
SERIALIZED: Final = re.compile(r"""serialized_pb=_b\(('(?:[^'\\\n]|\\.)*')\)""")
"""Its group is a literal of Python: protoc writes each in one line, in single quotes."""


def _load() -> tuple[ModuleType, ModuleType]:
    """Messages and stubs; afterwards sys.modules is as before, so `import etcd3` still means the package."""
    folder = _source_folder()
    pool = descriptor_pool.DescriptorPool()
    modules = {f"{PACKAGE}.{name}_pb2": _messages_module(folder / f"{name}_pb2.py", pool) for name in FILES}
    package = ModuleType(PACKAGE)
    for name, module in modules.items():
        setattr(package, name.rpartition(".")[2], module)
    with _visible({"etcd3": ModuleType("etcd3"), PACKAGE: package, **modules}):
        stubs = _execute(folder / "rpc_pb2_grpc.py")
    return modules[f"{PACKAGE}.rpc_pb2"], stubs


def _source_folder() -> Path:
    """Folder of the package, which is not imported, for that would fail."""
    spec = importlib.util.find_spec("etcd3")
    if spec is None or not spec.submodule_search_locations:
        raise PermanentError("The etcd store needs the package etcd3. Install edl[master].")
    return Path(next(iter(spec.submodule_search_locations))) / "etcdrpc"


def _messages_module(source: Path, pool: descriptor_pool.DescriptorPool) -> ModuleType:
    file = descriptor_pb2.FileDescriptorProto.FromString(_serialized_descriptor(source))
    pool.Add(file)
    descriptor: FileDescriptor = pool.FindFileByName(file.name)
    module = ModuleType(f"{PACKAGE}.{source.stem}")
    for name, message in descriptor.message_types_by_name.items():
        setattr(module, name, message_factory.GetMessageClass(message))
    return module


def _serialized_descriptor(source: Path) -> bytes:
    """The argument `serialized_pb=_b('...')` of the file's one FileDescriptor.

    Found by its text: every process that uses etcd starts with this, and parsing the 5,000 lines took it 40 ms.
    """
    found = SERIALIZED.search(source.read_text(encoding="utf-8"))
    if found is None:
        raise PermanentError(f"{source} holds no serialized descriptor. EDL needs etcd3 0.12.0.")
    literal: str = ast.literal_eval(found[1])
    return literal.encode("latin1")


def _execute(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{source.stem}", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _visible(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


_messages, _stubs = _load()
rpc: Final[Any] = _messages
"""Messages of etcdserverpb by name: `rpc.TxnRequest(...)`.  Typed Any: the package has no types."""
stubs: Final[Any] = _stubs
"""`stubs.KVStub(channel)` and the others; the channel may be a grpc.aio one."""
