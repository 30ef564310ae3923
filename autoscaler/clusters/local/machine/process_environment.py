"""Environment that every process of a run inherits from `edl run`, so that a script finds its libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def inherit(environment: Mapping[str, str], *, path_first: Path, cpu_milli: int) -> dict[str, str]:
    """The inherited variables without any EDL_ one, and with `path_first` at the head of PATH.

    Numerical libraries use as many threads as the pod requested cores, unless a variable says otherwise.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith("EDL_")}
    kept["PATH"] = f"{path_first}:{kept.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    kept.setdefault("PYTHONUNBUFFERED", "1")
    threads = str(max(1, math.ceil(cpu_milli / 1000)))
    for name in _THREAD_VARIABLES:
        kept.setdefault(name, threads)
    return kept


def device_list(gpus: Sequence[int], cuda_ids: Mapping[int, str]) -> str:
    """Value of CUDA_VISIBLE_DEVICES; a pod that requested none sees none.  `cuda_ids`: of those that are known."""
    return ",".join(cuda_ids.get(gpu, str(gpu)) for gpu in gpus)
