"""The process `edl launch` of one job: started, read to its end by a thread, and what it has said so far.

The process ends when its standard input closes, so a job does not outlive the interpreter that launched it.  The call,
a cell's source and the results are in a private folder, which is gone afterwards: where this interpreter is killed, the
command removes it.  What a caller may do with the job is
`job_handle`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, Final

from master.api.host.launch_variables import GIVEN
from master.api.host.unix_sockets import temporary_parent
from trainer_sdk.launching import edl_command
from trainer_sdk.launching.function_reference import FunctionReference
from trainer_sdk.launching.launched_function import CALL, SOURCE

_EXIT_S: Final = 10.0  # how long the end of the interpreter waits for a job that nobody stopped
_OVER: Final = frozenset({"Completed", "Failed"})


class LaunchProcess:
    """The process, in a session of its own: Ctrl-C is for the caller, who may go on.

    `run_folder`: empty until the run stands.  Once the process is over: `state` is Completed, Failed or Stopped,
    `message` the reason, `committed` of `samples` what its last checkpoint has, and `answers` what trainers left, by
    number.
    """

    def __init__(
        self,
        name: str,
        reference: FunctionReference,
        args: list[Any],
        kwargs: dict[str, Any],
        words: Sequence[str],
        *,
        variables: Mapping[str, str],
    ) -> None:
        """Raises UsageError, OSError or ValueError; then nothing runs, and no folder is left."""
        self.run_folder = ""
        self.state, self.message = "Failed", ""
        self.committed, self.samples = 0, 0
        self.answers: dict[int, dict[str, Any]] = {}
        self._name = name
        self._is_started, self._is_over = Event(), Event()
        self._private = _make_private_folder()
        try:
            _write_call(self._private, reference, args, kwargs)
            self._process = _start(self._private, ["--name", name, *words], variables)
        except BaseException:
            shutil.rmtree(self._private, ignore_errors=True)
            raise
        self._finalizer = weakref.finalize(self, _abandon, self._process, self._private)
        Thread(target=self._follow, name="edl-launch", daemon=True).start()  # keeps this object until the job's end

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def wait_until_started(self, timeout_s: float) -> bool:
        """True once the run stands, or never will."""
        return self._is_started.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """True once the process is over."""
        return self._is_over.wait(timeout_s)

    def interrupt(self) -> None:
        """End the run as Ctrl-C does: once in order, a second time at once."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Read the command's lines to its end, in a thread.  Whatever happens, nobody waits for the end in vain.

        Afterwards the results are here and the private folder is gone.  Where either cannot be read, the job counts as
        failed, and the message has the reason.
        """
        try:
            self._read_lines()
            self._read_results(self._process.wait())
        except Exception as error:  # noqa: BLE001  the thread's outermost frame: `result` tells it
            self.state, self.message = "Failed", f"its end could not be read: {error!r}"
        finally:
            self._is_started.set()
            try:
                self._finalizer()
            finally:
                self._is_over.set()

    def _read_lines(self) -> None:
        """Handle all lines.  One that cannot be read is the reason of the end if no later line has another one."""
        assert self._process.stdout is not None
        for line in self._process.stdout:  # all of them: a command whose output nobody reads does not end
            try:
                self._handle_line(json.loads(line))
            except (ValueError, TypeError, AttributeError):
                self.message = f"edl launch wrote a line that cannot be read: {line[:200].strip()!r}"

    def _handle_line(self, line: dict[str, Any]) -> None:
        if "jobs" in line:
            state = line["jobs"].get(self._name, "")
            self.state = state if state in _OVER else "Stopped"
            self.message = line.get("messages", {}).get(self._name, "")
            counts = line.get("samples", {}).get(self._name, {})
            self.committed, self.samples = counts.get("committed", 0), counts.get("total", 0)
        elif "run" in line:
            self.run_folder = line["run"]
            self._is_started.set()

    def _read_results(self, code: int) -> None:
        """Take what trainers and the command left in the private folder.  Raises OSError or ValueError."""
        errors = (self._private / "errors").read_text(encoding="utf-8", errors="replace")
        ended = "it was stopped before its end" if self.state == "Stopped" else f"edl launch ended with {code}"
        self.message = self.message or edl_command.problem_of(errors) or ended
        for file in sorted(self._private.glob("result-*.json")):
            number = int(file.stem.partition("-")[2])
            self.answers[number] = json.loads(file.read_text(encoding="utf-8"))


def _make_private_folder() -> Path:
    """A folder of this user alone."""
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp")  # noqa: S108 - looked at before one is taken
    return Path(tempfile.mkdtemp(prefix="edl-launch-", dir=temporary_parent(places)))


def _write_call(folder: Path, reference: FunctionReference, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Write the call for the trainers, which write their results beside it."""
    named = {"module": reference.module, "file": reference.file, "qualname": reference.qualname}
    path = [str(Path(place).absolute()) for place in sys.path]  # "" is the working directory
    (folder / CALL).write_text(json.dumps({**named, "args": args, "kwargs": kwargs, "path": path}), encoding="utf-8")
    if reference.source:
        (folder / SOURCE).write_text(reference.source, encoding="utf-8")


def _start(folder: Path, words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    target = ("-m", "trainer_sdk.launching.launched_function", str(folder))
    owned = ("--owner-folder", str(folder))
    given = {GIVEN + variable: text for variable, text in variables.items()}
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(
            [*edl_command.command_words(), "launch", "--json", "--ends-with-stdin", *owned, *words, *target],
            env={**edl_command.command_environment(), **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            start_new_session=True,
        )


def _abandon(process: subprocess.Popen[str], folder: Path) -> None:
    """End the process, if it has not ended, and remove the private folder."""
    streams: tuple[IO[str] | None, ...] = (process.stdin, process.stdout)
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_S)
    if process.poll() is not None:
        for stream in streams:
            if stream is not None and not stream.closed:
                stream.close()
    shutil.rmtree(folder, ignore_errors=True)
