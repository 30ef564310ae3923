"""Process pool for passes, one process a core; each keeps its own result, so a stop loses only running passes.

Processes end with the one that started them, however that ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from experiments.errors import MixedCommitsError, ProcessLostError, RefusedInputError
from experiments.running.code_version import loaded_version
from experiments.running.result_store import ResultStore
from experiments.running.simulation import simulate_pass
from experiments.running.tasks import Task

WAITING_PER_WORKER = 4  # tasks handed out ahead: little is lost when the user stops


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedPass:
    """A pass that ended; `error` is empty where it was kept."""

    task: Task
    wall_s: float = 0.0
    error: str = ""


def run_tasks(tasks: Sequence[Task], store: ResultStore, workers: int) -> Iterator[FinishedPass]:
    """Run passes and yield each as it ends.  Tasks start only as fast as results are consumed.

    Raises:
        ProcessLostError: a process was killed; the passes that it and the others had begun are not kept.
        RefusedInputError: a pass could not be kept; those after it could not either, so none is begun.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=ignore_terminal_signals) as pool:
        left = list(reversed(tasks))
        running: dict[Future[float], Task] = {}
        try:
            while left or running:
                while left and len(running) < workers * WAITING_PER_WORKER:
                    task = left.pop()
                    running[pool.submit(run_one, task, store.version, store.folder)] = task
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield report(running.pop(future), future)
        except BrokenProcessPool as error:
            raise ProcessLostError("a process that ran a pass was killed; the same command resumes") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_one(task: Task, version: str, folder: Path) -> float:
    """Simulate one pass and keep it; return its wall seconds.

    Raises:
        MixedCommitsError: the code was changed between the start of the run and that of this process.
        RefusedInputError: the result could not be written.
    """
    if loaded_version() != version:
        raise MixedCommitsError(
            f"the code changed from version {version} to {loaded_version()} during the run; run again"
        )
    result = simulate_pass(task.setting)
    ResultStore(version, folder).store(task, result)
    return result.wall_s


def report(task: Task, future: Future[float]) -> FinishedPass:
    """Return how a pass ended.  The failure of one pass is reported; an error that all would meet is raised."""
    error = future.exception()
    if isinstance(error, (BrokenProcessPool, RefusedInputError)):
        raise error
    if error is not None:
        return FinishedPass(task=task, error=f"{type(error).__name__}: {error}")
    return FinishedPass(task=task, wall_s=future.result())


def ignore_terminal_signals() -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the parent; end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=end_with_the_parent, daemon=True).start()


def end_with_the_parent() -> None:
    """Exit when the parent ends: files are written atomically, so none is left half-written."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
