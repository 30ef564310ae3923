"""How far a job has come, as its master tells it: the cluster side's few numbers of `master.api.status.JobStatus`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """Positions of the whole job (all epochs).  `done` are acked or marked, `committed` are in the last checkpoint."""

    total: int = 0
    epochs: int = 0
    done: int = 0
    committed: int = 0
    quarantined: int = 0
    is_complete: bool = False
    failure: str = ""
    lineage: int = 0
    head: str = ""
    checkpoint_age_s: float | None = None
    samples_per_s: float = 0.0
    metrics: tuple[tuple[str, float], ...] = ()

    @property
    def epoch(self) -> int:
        """The lowest epoch that may be unfinished, from 0; equal to `epochs` at the end."""
        return self.done * self.epochs // self.total if self.total else 0

    @property
    def loss(self) -> float | None:
        """What the trainers reported under that name."""
        return dict(self.metrics).get("loss")
