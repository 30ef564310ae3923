"""Jobs of the demo: two with parameter servers and, where torch is installed, a torch group.

Their models are those of `examples`.  Not here: how a machine's speed is measured (`baseline`), how jobs are run.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from experiments.demo.baseline import EXAMPLES, SCRIPT, Training

HERE: Final = Path(__file__).parent
WEB_LOW = 2
WITHOUT_TORCH: Final = (
    "torch is not installed, so the third job, a torch group, is left out; `make frameworks` installs it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """A job of the demo.  `relative_epochs`: with servers, epochs for each one of the lighter such job."""

    name: str
    weight: int
    relative_epochs: float = 0.0
    is_group: bool = False

    @property
    def manifest(self) -> str:
        return "group.yaml" if self.is_group else "job.yaml"


SERVER_JOBS: Final = (
    DemoJob(name="digits-a", weight=200, relative_epochs=1.5),  # of more weight: it gets more of the cluster
    DemoJob(name="digits-b", weight=100, relative_epochs=1.0),
)
GROUP: Final = DemoJob(name="digits-torch", weight=100, is_group=True)
GROUP_PAUSE_S: Final = 0.04  # of a micro-batch: the group's length does not depend on the machine's speed
GROUP_EPOCHS_PER_S: Final = 0.3  # of the load's duration; three trainers make an epoch in 2 s, one in 4 s
NICE_BESIDE_GROUP: Final = 7  # of trainers with servers, which take every core: a torch trainer needs one to start
SHARE_OF_ALONE, SHARE_BESIDE_GROUP = 0.15, 0.05
"""Epochs a second of the lighter job with servers relative to one process alone on a free core, without and beside a
group, each start of whose trainers takes 5 s of CPU; measured on 2 cores."""


def choose_jobs(*, has_torch: bool) -> tuple[DemoJob, ...]:
    """The jobs that an interpreter with or without torch can run."""
    return (*SERVER_JOBS, GROUP) if has_torch else SERVER_JOBS


def count_nodes(jobs: tuple[DemoJob, ...]) -> int:
    """Virtual nodes for these jobs: enough for several trainers of each, too few for all that they may have."""
    return 2 + len(jobs)


def highest_web(jobs: tuple[DemoJob, ...]) -> int:
    """Replicas of the web service at its peak, which leave the jobs little more than their minimum."""
    return 3 + 3 * len(jobs)


def estimate_epochs(jobs: tuple[DemoJob, ...], *, alone_epochs_per_s: float, load_s: float) -> float:
    """Epochs of the lighter job with servers that outlast the web load on this machine."""
    share = SHARE_BESIDE_GROUP if any(job.is_group for job in jobs) else SHARE_OF_ALONE
    return alone_epochs_per_s * share * load_s


def choose_epochs(jobs: tuple[DemoJob, ...], epochs: float, *, load_s: float) -> dict[str, int]:
    """Epochs of each job by its name, where the lighter job with servers trains `epochs`; a group outlasts the load."""
    of_group = load_s * GROUP_EPOCHS_PER_S
    return {job.name: max(1, round(of_group if job.is_group else epochs * job.relative_epochs)) for job in jobs}


def write_manifests(jobs: tuple[DemoJob, ...], epochs: Mapping[str, int], training: Training, out: Path) -> str:
    """YAML documents of the jobs and the web service.  The models go to `out`/NAME."""
    known = {
        "python": sys.executable,
        "script": SCRIPT,
        "group_script": EXAMPLES / "digits_torch_ledger.py",
        "group_pause_s": GROUP_PAUSE_S,
        "nice": NICE_BESIDE_GROUP if any(job.is_group for job in jobs) else 0,
        "web_script": EXAMPLES / "web_server.py",
        "out": out,
        "web_low": WEB_LOW,
        **asdict(training),
    }
    documents = [
        _fill(job.manifest, known | {"name": job.name, "weight": job.weight, "epochs": epochs[job.name]})
        for job in jobs
    ]
    return "---\n".join([*documents, _fill("web.yaml", known)])


def _fill(file: str, known: Mapping[str, object]) -> str:
    return string.Template((HERE / file).read_text(encoding="utf-8")).substitute(known)
