"""The handle of a launched job: a process `edl launch` that this one owns, asked through the command `edl`.

The process ends when its standard input closes, so a job does not outlive the interpreter that launched it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import IO, Any, Final, Self

from master.api.host.launch_variables import GIVEN
from master.api.host.unix_sockets import temporary_parent
from trainer_sdk.errors import JobFailedError, UsageError
from trainer_sdk.launching.function_reference import FunctionReference
from trainer_sdk.launching.launched_function import CALL, SOURCE

_HOME: Final = Path(__file__).resolve().parents[2]  # the command is this EDL's, not another one's on the path
_START_S: Final = 600.0  # an etcd may have to be built first, once on a machine
_COMMAND_S: Final = 60.0
_EXIT_S: Final = 10.0  # how long the end of the interpreter waits for a job that nobody stopped
_STOP_S: Final = 120.0
_NOT_FOUND: Final = 3  # exit code of `edl`
_OVER: Final = frozenset({"Completed", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStatus:
    """State of a launched job: Starting, Running, Suspended, and at the end Completed, Failed or Stopped.

    `trainers` that are ready, and `wanted` now; `committed` of `samples`, 0 until the script has named its data.
    """

    state: str
    trainers: int = 0
    wanted: int = 0
    committed: int = 0
    samples: int = 0


class JobHandle:
    """A job that `edl.launch` started.  As a context manager it stops the job at the block's end.

    It belongs to this interpreter: where that ends, the job is stopped.
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
        self.name = name
        self._is_started, self._is_over = Event(), Event()
        self._run = ""
        self._state, self._message = "Failed", ""
        self._answers: dict[int, dict[str, Any]] = {}
        self._private = _make_private_folder()
        try:
            _write_call(self._private, reference, args, kwargs)
            self._process = _start(self._private, ["--name", name, *words], variables)
        except BaseException:
            shutil.rmtree(self._private, ignore_errors=True)
            raise
        self._finalizer = weakref.finalize(self, _abandon, self._process, self._private)
        Thread(target=self._follow, name="edl-launch", daemon=True).start()  # keeps the handle until the job's end
        self._check_started()

    def _check_started(self) -> None:
        """Wait until the run stands.  Raises UsageError with what the command refused."""
        if not self._is_started.wait(_START_S):
            self.stop()
            raise JobFailedError(f"{self.name} did not start within {_START_S:g} s: {self._message}")
        if not self._run:
            self._is_over.wait()
            raise UsageError(f"launch: {self._message}")

    @property
    def run_folder(self) -> str:
        """The run's folder with its logs, events and checkpoints; `edl get tj --run FOLDER` asks about it."""
        return self._run

    def status(self) -> LaunchStatus:
        """The state now.  It asks the command `edl`, which takes about a second; TimeoutError: it did not answer."""
        if not self._is_over.is_set():
            try:
                return _read_status(json.loads(self._ask("get", f"tj/{self.name}", "-o", "json")))
            except JobFailedError:  # the run ends this very moment
                self._is_over.wait(_COMMAND_S)
        return LaunchStatus(state=self._state)

    def wait(self, timeout: float | None = None) -> str:
        """Wait for the end: Completed, Failed, or Stopped.  Raises TimeoutError after `timeout` seconds."""
        if not self._is_over.wait(timeout):
            raise TimeoutError(f"{self.name} has not ended within {timeout:g} s")
        return self._state

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned in the lowest-numbered trainer that saw the job's end; it waits for that.

        Raises JobFailedError with the reason (the traceback, if the function raised), TimeoutError, or UsageError if
        the value is not JSON's.
        """
        answers = self.results(timeout)
        return answers[min(answers)]

    def results(self, timeout: float | None = None) -> dict[int, Any]:
        """What the function returned, by trainer number, of those that saw the job's end.  Raises as `result` does."""
        if self.wait(timeout) != "Completed":
            raise JobFailedError(f"{self.name}: {self._state}" + (f": {self._message}" if self._message else ""))
        ended = {number: answer for number, answer in self._answers.items() if answer["ran_to_end"]}
        if not ended:
            raise JobFailedError(f"{self.name}: every trainer had to leave before its function returned")
        for number, answer in sorted(ended.items()):
            if "problem" in answer:
                raise UsageError(f"{self.name}, trainer {number}: {answer['problem']}")
        return {number: answer["value"] for number, answer in ended.items()}

    def resize(self, trainers: int) -> None:
        """Pin the job to this many trainers, within the range of the launch; 0: EDL decides again.

        It returns once the size is requested; `status` shows when it is reached.  Raises UsageError for a size that is
        not allowed.
        """
        self._ask("scale", f"tj/{self.name}", "--trainers", str(trainers))

    def logs(self, trainer: int = 0) -> str:
        """What the trainer of this number has written so far, also after the job's end."""
        return self._ask("logs", f"tj/{self.name}", "--trainer", str(trainer))

    def stop(self, timeout: float = _STOP_S) -> str:
        """End the job: trainers finish their batch within their grace, after `timeout` seconds they are killed."""
        for _ in range(2):  # as Ctrl-C: in order, and then at once
            if not self._is_over.is_set():
                with suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGINT)
                self._is_over.wait(timeout)
        if not self._is_over.is_set():
            self._process.kill()
        return self.wait(_STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<job {self.name}: {self._state if self._is_over.is_set() else 'started'}, {self._run}>"

    # ---- the process --------------------------------------------------------------------------------------------

    def _ask(self, *words: str) -> str:
        """Output of a command about the run.

        Raises UsageError with what it refuses, JobFailedError if it fails, TimeoutError if it does not end.
        """
        try:
            done = subprocess.run(
                [*_edl(), words[0], "--run", self._run, *words[1:]],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            asked = f"edl {words[0]} {words[1]} has not answered within {_COMMAND_S:g} s"
            raise TimeoutError(f"{asked}: the machine may be overloaded; ask again, or stop the job") from None
        if done.returncode in {1, _NOT_FOUND}:
            raise JobFailedError(done.stderr.strip().removeprefix("edl: "))
        if done.returncode:
            raise UsageError(done.stderr.strip().removeprefix("edl: "))
        return done.stdout

    def _follow(self) -> None:
        """Read the command's lines to its end, in a thread.  Whatever happens, nobody waits for the end in vain.

        Afterwards the results are here and the private folder is gone.  Where either cannot be read, the job counts as
        failed, and the message has the reason.
        """
        try:
            self._read_lines()
            self._read_results(self._process.wait())
        except Exception as error:  # noqa: BLE001  the thread's outermost frame: `result` tells it
            self._state, self._message = "Failed", f"its end could not be read: {error!r}"
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
                self._message = f"edl launch wrote a line that cannot be read: {line[:200].strip()!r}"

    def _read_results(self, code: int) -> None:
        """Take what trainers and the command left in the private folder.  Raises OSError or ValueError."""
        errors = (self._private / "errors").read_text(encoding="utf-8", errors="replace").strip()
        self._message = self._message or errors.removeprefix("edl: ") or f"edl launch ended with {code}"
        for file in sorted(self._private.glob("result-*.json")):
            number = int(file.stem.partition("-")[2])
            self._answers[number] = json.loads(file.read_text(encoding="utf-8"))

    def _handle_line(self, line: dict[str, Any]) -> None:
        if "jobs" in line:
            state = line["jobs"].get(self.name, "")
            self._state = state if state in _OVER else "Stopped"
            self._message = line.get("messages", {}).get(self.name, "")
        elif "run" in line:
            self._run = line["run"]
            self._is_started.set()


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
    """The command `edl launch` in a process that ends when its standard input closes."""
    target = ("-m", "trainer_sdk.launching.launched_function", str(folder))
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(
            [*_edl(), "launch", "--json", "--ends-with-stdin", *words, *target],
            env={**_environment(), **{GIVEN + variable: text for variable, text in variables.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the caller, who may go on
        )


def _edl() -> tuple[str, ...]:
    """The command `edl` of this interpreter.  Raises UsageError if the cluster side is not installed."""
    if importlib.util.find_spec("autoscaler") is None or importlib.util.find_spec("click") is None:
        raise UsageError("launch needs the command edl on this machine: install edl[autoscaler]")
    return (sys.executable, "-P", "-m", "autoscaler.cli")


def _environment() -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return inherited | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_HOME), inherited.get("PYTHONPATH"))))}


def _read_status(job: Mapping[str, Any]) -> LaunchStatus:
    told = job.get("status", {})
    holding = {one["type"] for one in told.get("conditions", ()) if one.get("status") == "True"}
    known = (("Completed", "Completed"), ("Failed", "Failed"), ("Suspended", "Suspended"), ("Ready", "Running"))
    trainers, progress = told.get("trainers", {}), told.get("progress", {})
    return LaunchStatus(
        state=next((state for condition, state in known if condition in holding), "Starting"),
        trainers=trainers.get("ready", 0),
        wanted=trainers.get("target", 0),
        committed=progress.get("samplesCommitted", 0),
        samples=progress.get("samplesTotal", 0),
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
