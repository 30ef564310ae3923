"""The simulated cluster: an adapter of the cluster port in virtual time, for experiments and what-if questions.

`simulated_cluster` is the adapter.  `world.physics` says how long things take, `scheduling.scheduler_profile` how pods
are scheduled and `controllers.training_model` what training yields.  `record` of the cluster holds the results.
"""

from autoscaler.clusters.simulated.controllers.replica_sets import Hpa, SimDeployment
from autoscaler.clusters.simulated.controllers.training_model import SpeedCurve, TrainingWork
from autoscaler.clusters.simulated.scheduling.scheduler_profile import (
    KUBE_SCHEDULER,
    KUBE_SCHEDULER_1_6,
    SchedulerProfile,
)
from autoscaler.clusters.simulated.simulated_cluster import SimulatedCluster, run_loop
from autoscaler.clusters.simulated.world.physics import PHYSICS_2017, DurationRange, Physics, fixed_duration
from autoscaler.clusters.simulated.world.run_recorder import JobRow, PodTimeline, RunRecorder, UsageRow, WebRow
from autoscaler.clusters.simulated.world.sim_pods import SimPod

__all__ = [
    "KUBE_SCHEDULER",
    "KUBE_SCHEDULER_1_6",
    "PHYSICS_2017",
    "DurationRange",
    "Hpa",
    "JobRow",
    "Physics",
    "PodTimeline",
    "RunRecorder",
    "SchedulerProfile",
    "SimDeployment",
    "SimPod",
    "SimulatedCluster",
    "SpeedCurve",
    "TrainingWork",
    "UsageRow",
    "WebRow",
    "fixed_duration",
    "run_loop",
]
