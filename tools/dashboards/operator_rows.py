"""Rows of the overview on the operator: what it decided and wrote, and whether it is well."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import Panel, Query, Row, Unit

DECISIONS: Final = Row(
    title="Decisions",
    panels=(
        Panel(
            title="Decisions per minute, by reason",
            description=(
                "Decisions that differ from the one before. Jobs that grow and shrink in turn: edl events names both."
            ),
            queries=(
                Query(expr="sum by (reason) (rate(edl_decisions_total[$__rate_interval])) * 60", legend="{{reason}}"),
            ),
            unit=Unit.PER_MINUTE,
            is_stacked=True,
        ),
        Panel(
            title="Resizes per minute, by cause",
            description="Changes of trainers and servers by EDL. policy.resizesPerMinute and cool-downs bound them.",
            queries=(
                Query(
                    expr="sum by (cause) (rate(edl_resizes_total[$__rate_interval])) * 60", legend="trainers: {{cause}}"
                ),
                Query(
                    expr="sum by (cause) (rate(edl_server_resizes_total[$__rate_interval])) * 60",
                    legend="servers: {{cause}}",
                ),
            ),
            unit=Unit.PER_MINUTE,
            is_stacked=True,
        ),
        Panel(
            title="Pods of jobs that ended, per minute, by cause",
            description=(
                "scheduler: preempted for pods of higher priority; drain, node: the node; exit: by themselves, which "
                "are failures unless the job is complete."
            ),
            queries=(
                Query(
                    expr="sum by (cause, role) (rate(edl_pod_terminations_total[$__rate_interval])) * 60",
                    legend="{{role}}: {{cause}}",
                ),
            ),
            unit=Unit.PER_MINUTE,
            is_stacked=True,
        ),
        Panel(
            title="Writes per second, by how they ended",
            description=(
                "The plan's actions. Refusals that go on: edl describe of the job has the API server's message."
            ),
            queries=(Query(expr="sum by (verdict) (rate(edl_writes_total[$__rate_interval]))", legend="{{verdict}}"),),
            unit=Unit.PER_SECOND,
            is_stacked=True,
        ),
    ),
)

HEALTH: Final = Row(
    title="The operator itself",
    panels=(
        Panel(
            title="Time of a pass",
            description=(
                "View, plan and writes of one pass. Above a second in p99: docs/reports/benchmarks.md has what to "
                "expect."
            ),
            queries=tuple(
                Query(
                    expr=(
                        f"histogram_quantile({quantile}, sum by (le) "
                        "(rate(edl_decision_seconds_bucket[$__rate_interval])))"
                    ),
                    legend=name,
                )
                for quantile, name in ((0.5, "p50"), (0.99, "p99"))
            ),
            unit=Unit.SECONDS,
            warn_at=1,
        ),
        Panel(
            title="API calls per second, by verb and outcome",
            description="Requests to the API server. Outcomes beside ok that stay: the operator's log has the message.",
            queries=(
                Query(
                    expr="sum by (verb, outcome) (rate(edl_api_calls_total[$__rate_interval]))",
                    legend="{{verb}}: {{outcome}}",
                ),
            ),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Faults of EDL, by task",
            description=(
                "Tasks that failed for one job through a fault of EDL, in the last hour; EdlJobErrors in the runbook."
            ),
            queries=(
                Query(expr="sum by (task) (increase(edl_job_errors_total[1h]))", legend="{{task}}"),
                Query(expr="max(edl_events_dropped)", legend="events dropped"),
            ),
            warn_at=1,
        ),
        Panel(
            title="etcd",
            description="Bytes of the fullest member: used, its file, and the quota. EdlEtcdNearlyFull in the runbook.",
            queries=(Query(expr="max by (what) (edl_etcd_bytes)", legend="{{what}}"),),
            unit=Unit.BYTES,
        ),
        Panel(
            title="Clocks",
            description=(
                "How far clocks are off: the API server's against the operator's, the others against Prometheus'. "
                "Above 30 s EdlClocksDiffer fires: look at the node's time service."
            ),
            queries=(
                Query(expr="max(edl_api_server_clock_ahead_seconds)", legend="API server"),
                Query(
                    expr=(
                        "max(abs(timestamp(edl_operator_clock_timestamp_seconds) - "
                        "edl_operator_clock_timestamp_seconds))"
                    ),
                    legend="operator",
                ),
                Query(
                    expr="max(abs(timestamp(edl_master_clock_timestamp_seconds) - edl_master_clock_timestamp_seconds))",
                    legend="masters",
                ),
            ),
            unit=Unit.SECONDS,
            alarm_at=30,
            least=None,
        ),
        Panel(
            title="Moves of parameter servers per minute",
            description=(
                "Servers that go to another node, with operator.moveServers. Given up again and again: "
                "EdlServerDrainStuck."
            ),
            queries=(
                Query(
                    expr="sum by (outcome) (rate(edl_server_moves_total[$__rate_interval])) * 60",
                    legend="{{outcome}}",
                ),
            ),
            unit=Unit.PER_MINUTE,
        ),
    ),
)
