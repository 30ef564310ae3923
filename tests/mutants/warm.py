"""Runs tests in forks of one process that has imported them all, with the code of one function exchanged.

Starting pytest and importing tests and product takes a second or two of a processor, most tests a hundredth of that.
`python -P warm.py FD FILE...` collects these files of tests in its working directory.  Then it reads orders
from stdin, one JSON object a line, and answers each with a line on the file descriptor FD: an exit code of pytest,
null for tests that did not end in time, or `COLD` where the fault stands in code that an import runs.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

COLD: Final = 99  # none of pytest's exit codes
TICK_S: Final = 0.01


class WarmTests:
    """The client's side: a process in a tree of sources that has imported these files of tests."""

    def __init__(self, folder: Path, files: Sequence[str], environment: dict[str, str]) -> None:
        answers, theirs = os.pipe()
        self._said = folder / "said.txt"
        self._process = subprocess.Popen(
            (sys.executable, "-P", __file__, str(theirs), *files),
            cwd=folder, env=environment, pass_fds=(theirs,), start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        self._answers = os.fdopen(answers)
        self._is_ready = self._answers.readline() == "ready\n"

    def run(self, names: Path, file: Path, source: bytes, limit_s: float) -> tuple[int | None, str]:
        """Runs the tests of a list against the file as it is; `source` is what was imported of it.

        Returns the exit code and what pytest said; COLD: nothing was run.
        """
        if not self._is_ready:
            return COLD, ""
        order = {"names": str(names), "file": str(file), "source": source.decode(), "limit_s": limit_s}
        assert self._process.stdin is not None
        try:
            print(json.dumps({**order, "said": str(self._said)}), file=self._process.stdin, flush=True)
            code = json.loads(self._answers.readline())
        except (BrokenPipeError, ValueError):
            self._is_ready = False
            return COLD, ""
        return code, self._said.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._answers.close()


def main() -> None:
    """Serves until stdin is closed."""
    answers, *files = sys.argv[1:]
    collected = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *files])
    functions: dict[str, list[FunctionType]] = {}
    for found in gc.get_objects():
        if isinstance(found, FunctionType):
            functions.setdefault(found.__code__.co_filename, []).append(found)
    gc.freeze()  # forks share these pages as long as nobody writes to them
    with os.fdopen(int(answers), "w") as out:
        print("ready" if collected == 0 else "wrong", file=out, flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            print(json.dumps(_served(order, functions.get(order["file"], []))), file=out, flush=True)


def _served(order: dict[str, Any], functions: Sequence[FunctionType]) -> int | None:
    child = os.fork()
    if child == 0:
        code = COLD
        try:
            code = _in_fork(order, functions)
        finally:
            os._exit(code)
    until_s = time.monotonic() + order["limit_s"]
    while time.monotonic() < until_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _end_group(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(TICK_S)
    _end_group(child)
    os.waitpid(child, 0)
    return None


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _in_fork(order: dict[str, Any], functions: Sequence[FunctionType]) -> int:
    os.setsid()
    for number, place, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(place, flags, 0o600), number)
    os.dup2(1, 2)
    if not exchange(functions, order["source"].encode(), Path(order["file"]).read_bytes()):
        return COLD
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", f"@{order['names']}"]))


def exchange(functions: Sequence[FunctionType], before: bytes, after: bytes) -> bool:
    """Gives the functions of a file, which were compiled from `before`, the code of `after`.

    Returns False if that is not the whole difference: what a module's or a class's body does was done at its import.
    """
    if before == after:
        return True
    old, new = (compile(source, "", "exec", dont_inherit=True) for source in (before, after))
    pairs = list(_pairs(old, new))
    if not all(_own(one) == _own(other) for one, other in pairs if not _is_function(one)):
        return False
    differing = {_place(one): other for one, other in pairs if _is_function(one) and one != other}
    exchanged = False
    for function in functions:
        code = differing.get(_place(function.__code__))
        if code is not None:
            function.__code__ = code
            exchanged = True
    return exchanged


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """A code object and what became of it, with all those within as far as they are the same ones."""
    yield old, new
    inner, others = ([value for value in code.co_consts if isinstance(value, CodeType)] for code in (old, new))
    if [code.co_name for code in inner] == [code.co_name for code in others]:
        for one, other in zip(inner, others, strict=True):
            yield from _pairs(one, other)


def _own(code: CodeType) -> tuple[object, ...]:
    """What it does itself, whatever lines it stands in."""
    values = tuple((type(value), value) for value in code.co_consts if not isinstance(value, CodeType))
    return code.co_code, code.co_names, values


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


if __name__ == "__main__":
    main()
