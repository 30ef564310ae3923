"""The dashboard of GPUs: which compute, who holds some and does not use them, and what that costs those who wait."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import Dashboard, Kind, Panel, Query, Row, Unit, Variable

_MODEL: Final = 'model=~"$model"'
_HOLDERS: Final = 'namespace=~"$namespace"'


def _share(verdict: str) -> str:
    return f'sum(max by (uuid) (edl_gpu_verdict{{verdict="{verdict}", {_MODEL}}}))'


_NOW: Final = Row(
    title="Now",
    panels=(
        Panel(
            title="Active",
            description="GPUs on which somebody computes, or of which that is not sure.",
            queries=(Query(expr=_share("active"), legend="active"),),
            kind=Kind.STAT,
            width=6,
            height=4,
        ),
        Panel(
            title="Held and idle",
            description=(
                "GPUs that pods have and do not use. The table below names the pods; edl get gpus says since when."
            ),
            queries=(Query(expr=_share("held"), legend="held"),),
            kind=Kind.STAT,
            width=6,
            height=4,
            warn_at=1,
        ),
        Panel(
            title="Free",
            description="GPUs that no pod has. Many, while jobs wait: edl why tj/NAME says what else is short.",
            queries=(Query(expr=_share("free"), legend="free"),),
            kind=Kind.STAT,
            width=6,
            height=4,
        ),
        Panel(
            title="Agents that see nothing",
            description="Agents whose driver or kubelet does not answer; EdlGpusUnwatched in the runbook.",
            queries=(
                Query(
                    expr="count(edl_agent_driver_up == 0 or edl_agent_owners_known == 0) or vector(0)", legend="agents"
                ),
            ),
            kind=Kind.STAT,
            width=6,
            height=4,
            alarm_at=1,
        ),
    ),
)

_IDLE: Final = Row(
    title="Idle",
    panels=(
        Panel(
            title="GPUs by verdict",
            description="What the GPUs do. held: a pod has it and nobody computes for the whole window.",
            queries=(
                Query(
                    expr=f"sum by (verdict) (max by (uuid, verdict) (edl_gpu_verdict{{{_MODEL}}}))",
                    legend="{{verdict}}",
                ),
            ),
            is_stacked=True,
        ),
        Panel(
            title="Held and idle, by namespace",
            description=(
                "Whose pods hold GPUs without use. Ask them; or annotation edl.dev/idle-reclaim (docs/gpus.md)."
            ),
            queries=(
                Query(
                    expr=(
                        "sum by (namespace) (max by (namespace, uuid) "
                        f'(edl_gpu_pod_verdict{{verdict="held", {_HOLDERS}}}))'
                    ),
                    legend="{{namespace}}",
                ),
            ),
            is_stacked=True,
        ),
        Panel(
            title="Pods with idle GPUs",
            description="Pods that hold GPUs on which nobody computes, and for how long; edl keep POD keeps them.",
            queries=(
                Query(
                    expr=(
                        "max by (namespace, pod, uuid) ("
                        f'(edl_gpu_pod_verdict{{verdict="held", {_HOLDERS}}} == 1) '
                        "* on (uuid) group_left max by (uuid) (edl_gpu_low_seconds))"
                    ),
                    legend="idle for",
                ),
            ),
            kind=Kind.TABLE,
            unit=Unit.SECONDS,
        ),
        Panel(
            title="GPU-hours held and idle, in the time shown",
            description="By namespace. Needs the chart's metrics.prometheusRule, which records a value a minute.",
            queries=(
                Query(
                    expr=(
                        f"sum by (namespace) (sum_over_time(namespace:edl_gpus_held:sum{{{_HOLDERS}}}[$__range])) / 60"
                    ),
                    legend="{{namespace}}",
                ),
            ),
            kind=Kind.STAT,
        ),
        Panel(
            title="GPU-hours by verdict, in the time shown",
            description="All GPUs. Needs the chart's metrics.prometheusRule, which records a value a minute.",
            queries=(Query(expr="sum_over_time(verdict:edl_gpus:sum[$__range]) / 60", legend="{{verdict}}"),),
            kind=Kind.STAT,
        ),
        Panel(
            title="GPUs that somebody waited for and nobody used",
            description=(
                "By consent of their owners. Above 0 with policy.idleReclaim: observe: act would give them away."
            ),
            queries=(
                Query(expr="sum(rate(edl_idle_gpu_seconds_total[$__rate_interval]))", legend="waited for"),
                Query(expr="sum(increase(edl_idle_gpus_given_back_total[1h]))", legend="given back in the last hour"),
            ),
        ),
        Panel(
            title="Use of allocated GPUs",
            description="Active among all that pods have. What is missing to 100 % is held and idle.",
            queries=(Query(expr=f"{_share('active')} / ({_share('active')} + {_share('held')})", legend="used"),),
            unit=Unit.RATIO,
            warn_at=0.7,
            is_low_bad=True,
        ),
    ),
)

_DEVICES: Final = Row(
    title="Devices",
    panels=(
        Panel(
            title="Utilisation",
            description=(
                "The driver's counter: the share of time in which some kernel ran. 100 % may still be little work."
            ),
            queries=(
                Query(expr=f"max by (uuid, gpu) (edl_gpu_utilization_ratio{{{_MODEL}}})", legend="{{gpu}} {{uuid}}"),
            ),
            unit=Unit.RATIO,
        ),
        Panel(
            title="Power",
            description="Mean power of the whole GPU. Near the idle line while a pod has it: nothing computes.",
            queries=(Query(expr=f"max by (uuid, gpu) (edl_gpu_power_watts{{{_MODEL}}})", legend="{{gpu}} {{uuid}}"),),
            unit=Unit.WATTS,
        ),
        Panel(
            title="Memory",
            description="Memory that processes hold. Much of it on an idle GPU: a notebook that keeps a model.",
            queries=(
                Query(expr=f"max by (uuid, gpu) (edl_gpu_memory_used_bytes{{{_MODEL}}})", legend="{{gpu}} {{uuid}}"),
            ),
            unit=Unit.BYTES,
        ),
        Panel(
            title="Age of the agents' samples",
            description="Above a minute: the agent hangs, or its node does; look at its pod.",
            queries=(Query(expr="max(time() - edl_agent_sample_timestamp_seconds)", legend="oldest"),),
            unit=Unit.SECONDS,
            warn_at=60,
        ),
    ),
)

GPUS: Final = Dashboard(
    uid="edl-gpus",
    title="EDL / GPUs",
    description=(
        "Which GPUs compute, who holds some without use, and what that costs those who wait. Needs agent.enabled."
    ),
    rows=(_NOW, _IDLE, _DEVICES),
    variables=(
        Variable(name="model", label="Model", query="label_values(edl_gpu_verdict, model)", has_all=True),
        Variable(
            name="namespace", label="Namespace", query="label_values(edl_gpu_pod_verdict, namespace)", has_all=True
        ),
    ),
)
