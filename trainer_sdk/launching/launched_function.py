"""A trainer of `edl.launch`: `python -m trainer_sdk.launching.launched_function FOLDER`.

FOLDER is private to the user; it has the call, and gets the result of each trainer.  A function that raises ends the
trainer with its traceback, which counts as any trainer's failure.  So does one that returns before the data has ended.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType
from typing import Any, Final

from trainer_sdk.errors import UsageError
from trainer_sdk.launching.function_reference import GUARD
from trainer_sdk.launching.json_values import check_json
from trainer_sdk.runtime.session_owner import has_opened_session, has_seen_end

CALL: Final = "call.json"
SOURCE: Final = "function.py"
_SESSION_HINT: Final = (
    "loop over the job's data in it, within `with edl.open() as session:`; plain functions need no job"
)
_TERMINATED: Final = 128 + signal.SIGTERM


class LeaveSignal:
    """SIGTERM: noted, since a trainer that had to leave has not seen the end; it ends a process without a session.

    Once the job's data have ended it ends nothing: trainers that are still in code after the loop get it then, and
    what the function returns within their grace is the job's result.
    """

    def __init__(self) -> None:
        self.was_sent = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.was_sent = True
        if (
            signal.getsignal(signal.SIGTERM) == self._handle and not has_seen_end()
        ):  # an open session has a handler of its own, and calls this
            sys.exit(_TERMINATED)


def main(folder: Path) -> None:
    """Call the function and write its result, or what is wrong with it."""
    call = json.loads((folder / CALL).read_text(encoding="utf-8"))
    sys.path[:] = [*call["path"], *(place for place in sys.path if place not in call["path"])]
    leave = LeaveSignal()
    value = find_function(call, folder)(*call["args"], **call["kwargs"])
    if not has_opened_session():
        sys.stderr.write(f"edl: {call['qualname']} returned and has opened no session: {_SESSION_HINT}\n")
    answer: dict[str, Any] = {"ran_to_end": has_seen_end() or not leave.was_sent}
    try:
        check_json(value, "result")
        answer["value"] = value
    except UsageError as error:
        answer["problem"] = str(error)
    number = os.environ.get("EDL_ORDINAL") or "0"
    draft = folder / f".result-{number}.new"
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.replace(folder / f"result-{number}.json")


def find_function(call: dict[str, Any], folder: Path) -> Callable[..., Any]:
    """The function that the call names."""
    module = importlib.import_module(call["module"]) if call["module"] else _run_file(call["file"] or folder / SOURCE)
    found: Any = module
    for step in call["qualname"].split("."):
        found = getattr(found, step)
    function: Callable[..., Any] = found
    return function


def _run_file(path: str | Path) -> Any:
    """The file as the module GUARD, whatever its suffix is."""
    loader = SourceFileLoader(GUARD, str(path))
    spec = importlib.util.spec_from_loader(GUARD, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[GUARD] = module
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(Path(sys.argv[1]))
