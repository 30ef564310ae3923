"""All processes of one job: a master, parameter servers, and trainers that run a script of tests/programs."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from tests.harness.master_process import JOB

PROGRAMS = Path(__file__).parent.parent / "programs"
BUDGET_S = 150.0


class RealJob:
    """Starts members of one job; `stop` ends every one that still runs."""

    def __init__(self, folder: Path, *, servers: int = 0, **environment: str) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.servers = servers
        self.processes = []
        address_file = folder / "master.address"
        self._common = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDL_")},
            "EDL_JOB": JOB,
            "EDL_CHECKPOINT_URI": str(self.checkpoints),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": "",
            **environment,
        }
        self.start(
            "master",
            [sys.executable, "-m", "master"],
            EDL_ADDRESS_FILE=str(address_file),
            EDL_SERVERS=str(servers),
            EDL_CHECK_INVARIANTS="1",
        )
        self.wait_for(address_file.exists, "the master to listen")
        self._common["EDL_MASTER"] = self.address = address_file.read_text().strip()
        for number in range(servers):
            self.server(number)

    def server(self, number: int) -> subprocess.Popen:
        return self.start(f"server-{number}", [sys.executable, "-m", "trainer_sdk.pserver"], EDL_ORDINAL=str(number))

    def start(self, name: str, command: list[str], **environment: str) -> subprocess.Popen:
        variables = {**self._common, "EDL_NAME": f"{JOB}-{name}", "EDL_ROLE": name.split("-", 1)[0], **environment}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def trainer(self, number: int, program: str, *arguments: object, **environment: str) -> subprocess.Popen:
        command = [sys.executable, str(PROGRAMS / program), *map(str, arguments)]
        return self.start(f"trainer-{number}", command, EDL_ORDINAL=str(number), **environment)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait_for(self, condition, what: str, budget_s: float = BUDGET_S):
        """The condition's first true value; fails with every log's tail when it does not come."""
        deadline_s = time.monotonic() + budget_s
        while time.monotonic() < deadline_s:
            if value := condition():
                return value
            time.sleep(0.05)
        logs = "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))
        raise AssertionError(f"waited {budget_s:g} s for {what}\n{logs}")

    def wait_for_exit(self, process: subprocess.Popen, budget_s: float = BUDGET_S) -> int:
        self.wait_for(lambda: process.poll() is not None, f"{process.args} to end", budget_s)
        return process.returncode

    def wait_for_line(self, name: str, text: str) -> None:
        self.wait_for(lambda: text in self.log(name), f"{text!r} in the log of {name}")

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                is_server = "trainer_sdk.pserver" in process.args  # after SIGTERM it would wait for another master
                process.send_signal(signal.SIGINT if is_server else signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def running(folder: Path, **settings):
    job = RealJob(folder, **settings)
    try:
        yield job
    finally:
        job.stop()
