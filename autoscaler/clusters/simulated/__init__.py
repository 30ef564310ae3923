"""The third adapter of the port: a cluster in virtual time, for experiments and what-if questions.

`cluster` is the door; `physics`, `profile` and `training` say as data how long things take, how the scheduler decides
and what training brings; `record` of the cluster is what came of it.
"""

from autoscaler.clusters.simulated.controllers.replica_sets import Deployment, Hpa
from autoscaler.clusters.simulated.controllers.training_model import SpeedCurve, Work
from autoscaler.clusters.simulated.scheduling.scheduler_profile import (
    KUBE_SCHEDULER,
    KUBE_SCHEDULER_1_6,
    SchedulerProfile,
)
from autoscaler.clusters.simulated.simulated_cluster import SimulatedCluster, run_loop
from autoscaler.clusters.simulated.world.physics import PHYSICS_2017, Physics, Spread, exactly
from autoscaler.clusters.simulated.world.run_recorder import JobRow, PodTimeline, Recorder, UsageRow, WebRow
from autoscaler.clusters.simulated.world.sim_pods import SimPod

__all__ = [
    "KUBE_SCHEDULER",
    "KUBE_SCHEDULER_1_6",
    "PHYSICS_2017",
    "Deployment",
    "Hpa",
    "JobRow",
    "Physics",
    "PodTimeline",
    "Recorder",
    "SchedulerProfile",
    "SimPod",
    "SimulatedCluster",
    "SpeedCurve",
    "Spread",
    "UsageRow",
    "WebRow",
    "Work",
    "exactly",
    "run_loop",
]
