"""The handle of a launched job: its state, size, logs, end and results, asked through the command `edl`.

The process that runs the job, and ends with this interpreter, is `launch_process`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from trainer_sdk.errors import JobFailedError, UsageError
from trainer_sdk.launching.edl_command import ask_run
from trainer_sdk.launching.launch_process import LaunchProcess

_START_S: Final = 600.0  # an etcd may have to be built first, once on a machine
_END_S: Final = 60.0  # between a run's last answer and the end of its command
_STOP_S: Final = 120.0


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

    def __init__(self, name: str, launch: LaunchProcess) -> None:
        """Returns once the run stands.  Raises UsageError with what the command refused, JobFailedError."""
        self.name = name
        self._launch = launch
        self._check_started()

    def _check_started(self) -> None:
        launch = self._launch
        if not launch.wait_until_started(_START_S):
            self.stop()
            raise JobFailedError(f"{self.name} did not start within {_START_S:g} s: {launch.message}")
        if not launch.run_folder:
            launch.wait()
            raise UsageError(f"launch: {launch.message}")

    @property
    def run_folder(self) -> str:
        """The run's folder with its logs, events and checkpoints; `edl get tj --run FOLDER` asks about it."""
        return self._launch.run_folder

    def status(self) -> LaunchStatus:
        """The state now.  It asks the command `edl`, which takes about a second; TimeoutError: it did not answer."""
        if not self._launch.is_over:
            try:
                return _read_status(json.loads(self._ask("get", "-o", "json")))
            except JobFailedError:  # the run ends this very moment
                self._launch.wait(_END_S)
        ended = self._launch
        return LaunchStatus(state=ended.state, committed=ended.committed, samples=ended.samples)

    def wait(self, timeout: float | None = None) -> str:
        """Wait for the end: Completed, Failed, or Stopped.  Raises TimeoutError after `timeout` seconds."""
        if not self._launch.wait(timeout):
            raise TimeoutError(f"{self.name} has not ended within {timeout:g} s")
        return self._launch.state

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
            raise JobFailedError(": ".join(filter(None, (self.name, self._launch.state, self._launch.message))))
        ended = {number: answer for number, answer in self._launch.answers.items() if answer["ran_to_end"]}
        if not ended:
            unreturned = f"{self.name}: in no trainer the function returned before it had to leave"
            raise JobFailedError(": ".join(filter(None, (unreturned, self._launch.message))))
        for number, answer in sorted(ended.items()):
            if "problem" in answer:
                raise UsageError(f"{self.name}, trainer {number}: {answer['problem']}")
        return {number: answer["value"] for number, answer in ended.items()}

    def resize(self, trainers: int) -> None:
        """Pin the job to this many trainers, within the range of the launch; 0: EDL decides again.

        It returns once the size is requested; `status` shows when it is reached.  Raises UsageError for a size that is
        not allowed.
        """
        self._ask("scale", "--trainers", str(trainers))

    def logs(self, trainer: int = 0) -> str:
        """What the trainer of this number has written so far, also after the job's end."""
        return self._ask("logs", "--trainer", str(trainer))

    def stop(self, timeout: float = _STOP_S) -> str:
        """End the job: trainers finish their batch within their grace, after `timeout` seconds they are killed."""
        for _ in range(2):
            if not self._launch.is_over:
                self._launch.interrupt()
                self._launch.wait(timeout)
        if not self._launch.is_over:
            self._launch.kill()
        return self.wait(_STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = self._launch.state if self._launch.is_over else "started"
        return f"<job {self.name}: {state}, {self.run_folder}>"

    def _ask(self, command: str, *words: str) -> str:
        """Output of a command about the job.  Raises as `ask_run`."""
        return ask_run(self.run_folder, command, f"tj/{self.name}", *words)


def _read_status(job: Mapping[str, Any]) -> LaunchStatus:
    status = job.get("status", {})
    holding = {one["type"] for one in status.get("conditions", ()) if one.get("status") == "True"}
    known = (("Completed", "Completed"), ("Failed", "Failed"), ("Suspended", "Suspended"), ("Ready", "Running"))
    trainers, progress = status.get("trainers", {}), status.get("progress", {})
    return LaunchStatus(
        state=next((state for condition, state in known if condition in holding), "Starting"),
        trainers=trainers.get("ready", 0),
        wanted=trainers.get("target", 0),
        committed=progress.get("samplesCommitted", 0),
        samples=progress.get("samplesTotal", 0),
    )
