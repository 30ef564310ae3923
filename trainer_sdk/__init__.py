"""The trainer SDK: what a training script imports.

    import trainer_sdk as edl

    with edl.open() as session:
        data = session.dataset("digits", size=1437, epochs=30, batch_size=32, seed=7)
        model = session.tables({"w": edl.dense((64, 10), init=edl.normal(0.05))}, optimiser=edl.sgd(0.1))
        for batch in data:
            weights = model.pull()
            loss, gradients = step(weights, X[batch.indices], y[batch.indices])
            model.push(gradients)
            batch.done(loss=loss)

Every record is in the model exactly once per epoch, whatever happens to trainers, servers and masters meanwhile.  The
same script runs on a cluster and alone (`python script.py`).  See `session` for the methods of a session, `specs` for
tables, `errors` for exceptions, `environment` for the variables of a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_sdk.dataset import Batch as Batch
    from trainer_sdk.dataset import Data as Data
    from trainer_sdk.launching.job_handle import JobHandle as JobHandle
    from trainer_sdk.launching.job_handle import LaunchStatus as LaunchStatus
    from trainer_sdk.session import Session as Session
    from trainer_sdk.tables import Tables as Tables

from trainer_sdk.errors import EdlError, GracePeriodExpired, JobFailedError, UsageError
from trainer_sdk.specs import (
    adagrad,
    adam,
    constant,
    dense,
    momentum,
    normal,
    sgd,
    sparse,
    uniform,
    zeros,
)

__all__ = [
    "EdlError",
    "GracePeriodExpired",
    "JobFailedError",
    "UsageError",
    "adagrad",
    "adam",
    "constant",
    "dense",
    "launch",
    "momentum",
    "normal",
    "open",
    "sgd",
    "sparse",
    "uniform",
    "zeros",
]


def open(*, master_budget_s: float = 120.0, server_budget_s: float = 120.0) -> Session:  # noqa: A001  as in edl.open
    """Opens this process's session with its job, as the environment says (`docs/environment.md`); use it with `with`.

    At SIGTERM the batch in hand is finished, the rest is returned and the loop ends; a call that would outlast the
    grace period raises GracePeriodExpired.  The budgets bound the wait for a master, or for parameter servers, once
    nothing is left to do without them.  Raises UsageError naming the variable that is wrong.
    """
    from trainer_sdk.session import open_session  # noqa: PLC0415  gRPC only where a session is opened

    return open_session(master_budget_s=master_budget_s, server_budget_s=server_budget_s)


def launch(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    *,
    trainers: int | tuple[int, int] | None = None,
    sizes: Sequence[int] | None = None,
    group: bool | None = None,
    global_batch: int | None = None,
    servers: int | tuple[int, int] | None = None,
    cpu: float | str | None = None,
    memory: str | None = None,
    gpu: int | None = None,
    name: str | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
    checkpoint: str | None = None,
    checkpoint_every: float | None = None,
    max_restarts: int | None = None,
    nodes: str | None = None,
    run_dir: str | None = None,
    etcd: bool = True,
) -> JobHandle:
    """Runs a function as a job on this machine, in as many trainers as fit, and returns its handle.

    Each trainer calls `function(*args, **kwargs)`, which opens a session as a script does.  It is found by its name: a
    function of a module is imported, one of the script that was started is taken from its file (so the call of `launch`
    stands under `if __name__ == "__main__":`), one of a notebook's cell by its source, with the imports and functions
    that it uses.  Arguments and results are JSON values.

    The job is a group, whose trainers each hold the model, unless it has `servers` or `group` is False: then trainers
    share out the data alone.  The other parameters are the options of `edl launch`; `etcd=False`: the master keeps its
    state in memory, and starts again from the last checkpoint.  Raises UsageError for what cannot be launched; then
    nothing runs.
    """
    from trainer_sdk.launching.launch import launch_function  # noqa: PLC0415  not for trainers

    options = {"cpu": cpu, "memory": memory, "gpu": gpu, "checkpoint": checkpoint, "checkpoint_every": checkpoint_every}
    options |= {"global_batch": global_batch, "max_restarts": max_restarts, "nodes": nodes, "run_dir": run_dir}
    return launch_function(
        function,
        args,
        kwargs,
        trainers=trainers,
        sizes=sizes,
        group=group,
        servers=servers,
        name=name,
        env=env,
        options=options,
        has_etcd=etcd,
    )
