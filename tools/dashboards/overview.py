"""The overview: who has the cluster, what jobs have and want; what was decided follows in `operator_rows`."""

from __future__ import annotations

from typing import Final

from tools.dashboards.operator_rows import DECISIONS, HEALTH
from tools.dashboards.panels import Dashboard, Kind, Panel, Query, Row, Unit, Variable

_JOBS: Final = 'namespace=~"$namespace"'
_BY_JOB: Final = "{{namespace}}/{{job}}"
_USES: Final = (
    "others: web pods and everything that is not EDL's; core: minima of jobs; surplus: what jobs have above them and "
    "give back at once; closed: free on nodes that are cordoned or not ready."
)

_NOW: Final = Row(
    title="Now",
    panels=(
        Panel(
            title="Leaders",
            description="Operators that lead: one. None or two: nothing is decided; EdlNoLeader in the runbook.",
            queries=(Query(expr="sum(edl_operator_leading)", legend="leaders"),),
            kind=Kind.STAT,
            width=4,
            height=4,
            alarm_at=1,
            is_low_bad=True,
        ),
        Panel(
            title="Jobs that wait",
            description="Active jobs that have not started. The table below names them; edl why tj/NAME says for what.",
            queries=(
                Query(expr=f"count(edl_job_waiting_since_timestamp_seconds{{{_JOBS}}}) or vector(0)", legend="jobs"),
            ),
            kind=Kind.STAT,
            width=4,
            height=4,
            warn_at=1,
        ),
        Panel(
            title="Jobs in trouble",
            description=(
                "Jobs that failed, have less than their minimum, or whose checkpoints fail; edl describe tj/NAME."
            ),
            queries=(
                Query(
                    expr=(
                        "count(max by (namespace, job) "
                        f'(edl_job_condition{{type=~"Failed|Degraded", status="True", {_JOBS}}} or '
                        f'edl_job_condition{{type="CheckpointsCurrent", status="False", {_JOBS}}})) or vector(0)'
                    ),
                    legend="jobs",
                ),
            ),
            kind=Kind.STAT,
            width=4,
            height=4,
            alarm_at=1,
        ),
        Panel(
            title="Pods of others that wait",
            description="Web pods and others without a node. While this stands above 0 surplus leaves, where it helps.",
            queries=(Query(expr='sum(edl_cluster_waiting_pods{of="others"})', legend="pods"),),
            kind=Kind.STAT,
            width=4,
            height=4,
            warn_at=1,
        ),
        Panel(
            title="Free GPUs",
            description=(
                "GPUs on open nodes that no pod has. Many, while jobs wait: edl why tj/NAME says what else is short."
            ),
            queries=(Query(expr='sum(edl_cluster_gpus{use="free"})', legend="GPUs"),),
            kind=Kind.STAT,
            width=4,
            height=4,
        ),
        Panel(
            title="Age of the view",
            description=(
                "How old what EDL knows of the cluster is. Above 30 s it writes nothing; EdlViewStale in the runbook."
            ),
            queries=(Query(expr="max(edl_view_age_seconds)", legend="age"),),
            kind=Kind.STAT,
            unit=Unit.SECONDS,
            width=4,
            height=4,
            warn_at=10,
            alarm_at=30,
        ),
    ),
)

_CLUSTER: Final = Row(
    title="Who has the cluster",
    panels=(
        Panel(
            title="Cores",
            description=f"Allocatable cores by use. {_USES}",
            queries=(Query(expr="sum by (use) (edl_cluster_cpu_cores)", legend="{{use}}"),),
            is_stacked=True,
        ),
        Panel(
            title="GPUs",
            description=f"Allocatable GPUs by use. {_USES}",
            queries=(Query(expr="sum by (use) (edl_cluster_gpus)", legend="{{use}}"),),
            is_stacked=True,
        ),
        Panel(
            title="Memory",
            description=f"Allocatable memory by use. {_USES}",
            queries=(Query(expr="sum by (use) (edl_cluster_memory_bytes)", legend="{{use}}"),),
            unit=Unit.BYTES,
            is_stacked=True,
        ),
        Panel(
            title="Nodes",
            description=(
                "Nodes by state. Jobs leave nodes that are drained; a node that is not ready keeps its pods' room."
            ),
            queries=(Query(expr="sum by (state) (edl_cluster_nodes)", legend="{{state}}"),),
            is_stacked=True,
        ),
    ),
)

_SIZES: Final = Row(
    title="Jobs",
    panels=(
        Panel(
            title="Sizes",
            description=(
                "Trainers of each job: ready, wanted by the plan, and the spec's bounds. A click leads to the job."
            ),
            queries=tuple(
                Query(expr=f'sum by (namespace, job) (edl_job_trainers{{state="{state}", {_JOBS}}})', legend=name)
                for state, name in (("ready", "ready"), ("target", "wanted"), ("min", "min"), ("max", "max"))
            ),
            kind=Kind.TABLE,
            links_jobs=True,
        ),
        Panel(
            title="Why jobs are not larger",
            description=(
                "Jobs by the reason of their condition Scaled. NodeFit, Priority and FairShare are answered by more "
                "nodes; Cooldown and Budget by time; Max by the job's spec. docs/kubernetes.md has every reason."
            ),
            queries=(
                Query(
                    expr=f'count by (reason) (edl_job_condition{{type="Scaled", {_JOBS}}} == 1)', legend="{{reason}}"
                ),
            ),
            is_stacked=True,
        ),
        Panel(
            title="Trainers ready",
            description="Trainers that train. A click on a line leads to its job.",
            queries=(
                Query(
                    expr=f'sum by (namespace, job) (edl_job_trainers{{state="ready", {_JOBS}}})',
                    legend=_BY_JOB,
                ),
            ),
            is_stacked=True,
            links_jobs=True,
        ),
        Panel(
            title="Weighted share",
            description=(
                "Each job's dominant share by its weight. Jobs of one priority that could grow are near each other."
            ),
            queries=(Query(expr=f"sum by (namespace, job) (edl_job_share{{{_JOBS}}})", legend=_BY_JOB),),
            unit=Unit.RATIO,
            links_jobs=True,
        ),
        Panel(
            title="Samples per second",
            description=(
                "Throughput of each job, as its master says. A line at 0 beside ready trainers: edl describe tj/NAME."
            ),
            queries=(Query(expr=f"sum by (namespace, job) (edl_job_samples_per_second{{{_JOBS}}})", legend=_BY_JOB),),
            unit=Unit.COUNT,
            links_jobs=True,
        ),
        Panel(
            title="Time since the last checkpoint",
            description=(
                "What each job would train again if it lost its servers now. EdlCheckpointsStopped fires at ten times "
                "the job's interval."
            ),
            queries=(
                Query(
                    expr=f"time() - max by (namespace, job) (edl_job_uncommitted_since_timestamp_seconds{{{_JOBS}}})",
                    legend=_BY_JOB,
                ),
            ),
            unit=Unit.SECONDS,
            links_jobs=True,
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    uid="edl",
    title="EDL / Overview",
    description="Who has the cluster, what jobs have and want, what was decided, and whether the operator is well.",
    rows=(_NOW, _CLUSTER, _SIZES, DECISIONS, HEALTH),
    variables=(
        Variable(name="namespace", label="Namespace", query="label_values(edl_job_trainers, namespace)", has_all=True),
    ),
)
