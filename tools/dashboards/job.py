"""The dashboard of one job: its size and why, how it trains, its checkpoints, its servers, its failures."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import JOB_UID, Dashboard, Kind, Panel, Query, Row, Unit, Variable

_JOB: Final = 'namespace="$namespace", job="$job"'
_MASTER: Final = 'namespace="$namespace", edl_dev_job="$job"'
_RATE: Final = "[$__rate_interval]"


def _stat(title: str, description: str, expr: str, unit: Unit = Unit.COUNT, **more: float) -> Panel:
    return Panel(
        title=title,
        description=description,
        queries=(Query(expr=expr, legend=title.lower()),),
        kind=Kind.STAT,
        unit=unit,
        width=4,
        height=4,
        warn_at=more.get("warn_at"),
        alarm_at=more.get("alarm_at"),
    )


_NOW: Final = Row(
    title="$namespace/$job",
    panels=(
        _stat(
            "Trainers now",
            "Trainers that are ready. Size below tells what is wanted, and Conditions why.",
            f'sum(edl_job_trainers{{state="ready", {_JOB}}})',
        ),
        _stat("Trained", "Part of all samples that is trained.", f"max(edl_job_progress_ratio{{{_JOB}}})", Unit.RATIO),
        _stat(
            "Throughput",
            "Samples per second of all trainers. 0 beside ready trainers: edl describe tj/$job names the problem.",
            f"max(edl_job_samples_per_second{{{_JOB}}})",
        ),
        _stat(
            "Time left",
            "At the present throughput. It changes with the job's size.",
            f'sum(edl_master_positions{{place=~"todo|leased", {_MASTER}}}) / '
            f"(sum(edl_master_samples_per_second{{{_MASTER}}}) > 0)",
            Unit.SECONDS,
        ),
        _stat(
            "Since the last checkpoint",
            "What would be trained again if the job lost its servers now. Conditions says why it grows.",
            f"time() - max(edl_job_uncommitted_since_timestamp_seconds{{{_JOB}}})",
            Unit.SECONDS,
        ),
        _stat(
            "Failures in a row",
            "Without one completed batch between them. At spec.runPolicy.backoffLimit the job fails; edl logs tj/$job.",
            f"max(edl_job_failures{{{_JOB}}})",
            warn_at=1,
            alarm_at=3,
        ),
    ),
)

_SIZE: Final = Row(
    title="Size, and why",
    panels=(
        Panel(
            title="Trainers",
            description=(
                "What the job has, what the plan wants, and the bounds of its spec. Ready below wanted for long: its "
                "pods wait for nodes or images; kubectl describe them. Wanted below max: Conditions has the reason."
            ),
            queries=tuple(
                Query(expr=f'sum(edl_job_trainers{{state="{state}", {_JOB}}})', legend=name)
                for state, name in (
                    ("ready", "ready"),
                    ("target", "wanted"),
                    ("min", "min"),
                    ("max", "max"),
                    ("surplus", "surplus"),
                )
            ),
        ),
        Panel(
            title="Conditions",
            description=(
                "Each condition with status and reason; docs/kubernetes.md has what they mean, the runbook what to do."
            ),
            queries=(
                Query(
                    expr=f"sum by (type, status, reason) (edl_job_condition{{{_JOB}}} == 1)",
                    legend="now",
                ),
            ),
            kind=Kind.TABLE,
        ),
        Panel(
            title="Waits to start, since",
            description=(
                "How long the job has waited for free capacity; edl why tj/$job names what is missing, and who has it."
            ),
            queries=(
                Query(
                    expr=f"time() - max(edl_job_waiting_since_timestamp_seconds{{{_JOB}}})",
                    legend="waits",
                ),
                Query(
                    expr=f"sum by (by) (edl_job_start_held_up_by{{{_JOB}}})",
                    legend="held up by {{by}}",
                ),
            ),
            unit=Unit.SECONDS,
            warn_at=1800,
        ),
        Panel(
            title="Weighted share",
            description="The job's dominant share by its weight. Others of its priority with a smaller one grow first.",
            queries=(Query(expr=f"max(edl_job_share{{{_JOB}}})", legend="share"),),
            unit=Unit.RATIO,
        ),
    ),
)

_TRAINING: Final = Row(
    title="Training",
    panels=(
        Panel(
            title="Samples per second",
            description=(
                "Beside Trainers above: a job that does not get faster with more trainers has reached its knee."
            ),
            queries=(Query(expr=f"max(edl_job_samples_per_second{{{_JOB}}})", legend="samples/s"),),
        ),
        Panel(
            title="Efficiency",
            description=(
                "Throughput of each trainer at this size, in parts of what one alone would have, by the fitted curve. "
                "Known once two sizes have been seen. Low: spec.trainer.efficiency keeps the job from growing on."
            ),
            queries=(Query(expr=f"max(edl_job_efficiency_ratio{{{_JOB}}})", legend="efficiency"),),
            unit=Unit.RATIO,
            warn_at=0.5,
            is_low_bad=True,
        ),
        Panel(
            title="Time that trainers wait",
            description=(
                "For parameter servers, or in a group for data. High: more servers (edl why tj/$job), or faster "
                "storage."
            ),
            queries=(Query(expr=f"max(edl_job_waiting_ratio{{{_JOB}}})", legend="waiting"),),
            unit=Unit.RATIO,
            warn_at=0.5,
        ),
        Panel(
            title="Pause of the last resize",
            description=(
                "How long a group's last change of members stopped it. policy.payoffSeconds weighs it against growth."
            ),
            queries=(Query(expr=f"max(edl_job_resize_pause_seconds{{{_JOB}}})", legend="pause"),),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Samples by place",
            description=(
                "Where samples are. Quarantined grows: records that fail on several trainers, in its master's log."
            ),
            queries=(Query(expr=f"sum by (place) (edl_master_positions{{{_MASTER}}})", legend="{{place}}"),),
            is_stacked=True,
        ),
        Panel(
            title="Work done again, samples per second",
            description=(
                "Samples that came back from trainers or servers that were lost. Much: failures below, or short leases."
            ),
            queries=(
                Query(expr=f"sum(rate(edl_master_reworked_positions_total{{{_MASTER}}}{_RATE}))", legend="again"),
            ),
            unit=Unit.COUNT,
        ),
    ),
)

_CHECKPOINTS: Final = Row(
    title="Checkpoints",
    panels=(
        Panel(
            title="Time since the last checkpoint",
            description="Against spec.checkpoint.everySeconds. At ten times that EdlCheckpointsStopped fires.",
            queries=(
                Query(expr=f"time() - max(edl_job_last_checkpoint_timestamp_seconds{{{_JOB}}})", legend="last commit"),
                Query(expr=f"max(edl_job_checkpoint_every_seconds{{{_JOB}}})", legend="interval"),
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Time of a checkpoint",
            description=(
                "From the begin of a commit to its end, the mean. Longer than the interval: a larger interval, or "
                "faster storage."
            ),
            queries=(
                Query(
                    expr=(
                        f"sum(rate(edl_master_commit_seconds_sum{{{_MASTER}}}{_RATE})) / "
                        f"(sum(rate(edl_master_commit_seconds_count{{{_MASTER}}}{_RATE})) > 0)"
                    ),
                    legend="mean",
                ),
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Checkpoints per minute",
            description="None while the job trains: CheckpointsCurrent among the conditions has the reason.",
            queries=(Query(expr=f"sum(rate(edl_master_commits_total{{{_MASTER}}}{_RATE})) * 60", legend="commits"),),
            unit=Unit.PER_MINUTE,
        ),
        Panel(
            title="Problems",
            description="1 for each kind of problem that its master tells now; edl describe tj/$job has the text.",
            queries=(Query(expr=f"max by (what) (edl_master_problem{{{_MASTER}}})", legend="{{what}}"),),
            alarm_at=1,
        ),
    ),
)

_SERVERS: Final = Row(
    title="Members",
    panels=(
        Panel(
            title="Parameter servers",
            description=(
                "Draining for long: EdlServerDrainStuck in the runbook. Nothing here in a group or without servers."
            ),
            queries=(Query(expr=f"sum by (state) (edl_job_servers{{{_JOB}}})", legend="{{state}}"),),
        ),
        Panel(
            title="Buckets in motion, or with one copy",
            description=(
                "Parts of the model on their way between servers, or without the second copy that the job wants."
            ),
            queries=(
                Query(expr=f"sum(edl_master_moving_buckets{{{_MASTER}}})", legend="moving"),
                Query(expr=f"sum(edl_master_buckets_waiting_to_move{{{_MASTER}}})", legend="waiting to move"),
                Query(expr=f"sum(edl_master_buckets_with_one_copy{{{_MASTER}}})", legend="one copy"),
            ),
        ),
        Panel(
            title="Connected members",
            description="Members with a stream to the master. Fewer than ready pods: the network, or NetworkPolicies.",
            queries=(Query(expr=f"sum by (role) (edl_master_members{{{_MASTER}}})", legend="{{role}}"),),
        ),
        Panel(
            title="Term and lineage",
            description="A new term: another master took over. A new lineage: the job went back to a checkpoint.",
            queries=(
                Query(expr=f"max(edl_master_term{{{_MASTER}}})", legend="term"),
                Query(expr=f"max(edl_master_lineage{{{_MASTER}}})", legend="lineage"),
            ),
        ),
    ),
)

JOB: Final = Dashboard(
    uid=JOB_UID,
    title="EDL / Job",
    description=(
        "One job: its size and why, how it trains, its checkpoints, its members. Panels of masters need podMonitor."
    ),
    rows=(_NOW, _SIZE, _TRAINING, _CHECKPOINTS, _SERVERS),
    variables=(
        Variable(name="namespace", label="Namespace", query="label_values(edl_job_trainers, namespace)"),
        Variable(name="job", label="Job", query='label_values(edl_job_trainers{namespace="$namespace"}, job)'),
    ),
)
