"""`edl why`, `edl plan` and `edl what-if`: questions to the planner about a place or a saved snapshot.

Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autoscaler.cli.arguments.options import complete_target, target_argument
from autoscaler.cli.arguments.parameter_types import Label, NodeShape, WebSize
from autoscaler.cli.arguments.place_options import place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.commands.snapshot import SnapshotSource, open_snapshot, snapshot_option
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.output.formats import format_content
from autoscaler.clusters.object_kinds import OBJECT_KINDS
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # planner and manifests are not for --help
    from autoscaler.domain import WorkloadName
    from autoscaler.planner.counterfactual import PlanInputs

F = TypeVar("F", bound=Callable[..., Any])


def output_as(*forms: str) -> Callable[[F], F]:
    """-o, with the first form as the default."""
    return click.option("-o", "--output", type=click.Choice(forms), default=forms[0], help="Output format.")


def complete_node(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """node/NAME of the live run's nodes."""
    return complete_target(context, param, f"node/{incomplete.removeprefix('node/')}")


def complete_web(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """NAME= of the live run's deployments."""
    found = complete_target(context, param, f"deployment/{incomplete}")
    return [f"{name.removeprefix('deployment/')}=" for name in found]


@click.command()
@target_argument("tj/NAME")
@click.option(
    "--size",
    type=click.IntRange(min=1),
    default=None,
    help="Explain what would give the job at least this many trainers.",
)
@output_as("text", "json", "yaml")
@snapshot_option
@place_options
def why(*, kind: str, name: str, size: int | None, output: str, snapshot: Path | None, selector: PlaceSelector) -> None:
    """Explain a job's size, and the smallest changes that would raise it.

    Each answer is the smallest change of its kind: a plan with it gives the size beside it, and nothing smaller of that
    kind does.  Windows between resizes are ignored.

    \b
    edl why tj/digits
    edl why tj/digits --size 8 --snapshot snapshot.json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.output import planner_report  # noqa: PLC0415 - the planner is not for --help
    from autoscaler.domain import JobName  # noqa: PLC0415 - with it
    from autoscaler.planner.counterfactual import explain  # noqa: PLC0415 - with it
    from autoscaler.views.planning.why import why_content  # noqa: PLC0415 - with it

    _check_job(kind)
    with open_snapshot(selector, snapshot) as source:
        inputs, facts = _inputs_of(source), source.job_facts(name)
    if facts.ended:
        problem = f"tj/{name} has no size any more: {facts.ended}; see edl describe tj/{name}"
        raise CommandError(Exit.NOT_FOUND, problem)
    full_name = _find("tj", name, [job.name for job in inputs.view.jobs], source.namespace)
    found = explain(inputs, JobName(full_name), more_than=(size or 1) - 1)
    job = next(job for job in inputs.view.jobs if job.name == full_name)
    more_than = max(found.settled.target, (size or 1) - 1)
    lines = planner_report.why_lines(
        found,
        more_than,
        job,
        is_ratio_measured=facts.is_ratio_measured,
        idle=facts.idle,
        not_training=facts.not_training,
    )
    print(escape_controls("\n".join(lines) if output == "text" else format_content(why_content(found, job), output)))


@click.command()
@output_as("table", "wide", "json", "yaml")
@snapshot_option
@place_options
def plan(*, output: str, snapshot: Path | None, selector: PlaceSelector) -> None:
    """Print the plan that the planner would make now; nothing is written.

    REMAINING: how long a job takes at its TARGET, by its measured throughput; with the likely range where it has not
    been measured there, and "-" where too little is known.

    \b
    edl plan
    edl plan --snapshot snapshot.json -o wide
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.output import planner_report  # noqa: PLC0415 - the planner is not for --help
    from autoscaler.planner import plan as decide  # noqa: PLC0415 - with it

    with open_snapshot(selector, snapshot) as source:
        inputs = _inputs_of(source)
    found, jobs = decide(inputs.view, inputs.policy, inputs.now_s), {job.name: job for job in inputs.view.jobs}
    if output in {"table", "wide"}:
        print(escape_controls("\n".join(planner_report.plan_lines(found, jobs, is_wide=output == "wide"))))
    else:
        print(escape_controls(format_content(planner_report.plan_content(found, jobs), output)))


@click.command("what-if")
@click.option(
    "--add-nodes", type=click.IntRange(1, 10_000), default=None, help="Number of nodes to add, each of --shape."
)
@click.option("--shape", type=NodeShape(), default=None, help="Shape of each new node, e.g. 16cpu,64Gi,8gpu.")
@click.option("--label", "labels", type=Label(), multiple=True, help="Label of each new node, e.g. zone=a.")
@click.option("--remove-node", "removed", multiple=True, shell_complete=complete_node, help="Node to remove.")
@click.option(
    "--web",
    type=WebSize(),
    multiple=True,
    shell_complete=complete_web,
    help="Replicas of a deployment: 400, or nginx=400.",
)
@click.option("--reclaim-idle", is_flag=True, help="Pods of others that hold GPUs and do not use them give them back.")
@click.option(
    "--fairness",
    type=click.Choice(("Job", "Namespace", "Progress")),
    default=None,
    help="policy.fairness: what is made equal, and between whom.",
)
@click.option(
    "--submit", type=click.Path(path_type=Path), multiple=True, help="File with jobs and deployments to submit."
)
@output_as("table", "json", "yaml")
@snapshot_option
@place_options
def what_if(*, output: str, snapshot: Path | None, selector: PlaceSelector, **changes: Any) -> None:
    """Print job and web sizes with other nodes, other load or another job.  Nothing is changed.

    NOW: present sizes.  BEFORE: sizes once the cluster has converged without the changes.  AFTER: with them.

    \b
    edl what-if --add-nodes 4 --shape 16cpu,64Gi,8gpu
    edl what-if --web nginx=400 --remove-node node-2
    edl what-if --submit job.yaml --snapshot snapshot.json
    """  # noqa: D301 - click keeps the lines after this mark as they are
    if (changes["add_nodes"] is None) != (changes["shape"] is None):
        raise click.UsageError("--add-nodes N and --shape go together")
    if changes["labels"] and changes["shape"] is None:
        raise click.UsageError("--label applies to new nodes: add --add-nodes N and --shape")
    if not any(changes.values()):
        raise click.UsageError(
            "give at least one change: --add-nodes, --remove-node, --web, --reclaim-idle, --fairness or --submit"
        )
    from autoscaler.cli.output import what_if_report  # noqa: PLC0415 - the planner is not for --help
    from autoscaler.planner.counterfactual import converge  # noqa: PLC0415 - with it
    from autoscaler.views.planning.what_if import WhatIfComparison, comparison_content  # noqa: PLC0415 - with it

    with open_snapshot(selector, snapshot) as source:
        inputs = _inputs_of(source)
        changed, descriptions = _apply_changes(inputs, changes, source)
    found = WhatIfComparison(
        changes=tuple(descriptions), inputs=inputs, before=converge(inputs), after=converge(changed)
    )
    if output == "table":
        print(escape_controls("\n".join(what_if_report.comparison_lines(found))))
    else:
        print(escape_controls(format_content(comparison_content(found), output)))


def _apply_changes(inputs: PlanInputs, changes: dict[str, Any], source: SnapshotSource) -> tuple[PlanInputs, list[str]]:
    """The planner's inputs with the changes of the command line, and descriptions of these changes."""
    from autoscaler.domain import Fairness, NodeName  # noqa: PLC0415 - not for --help
    from autoscaler.views.planning.what_if_form import WhatIfChanges, apply_changes  # noqa: PLC0415 - with it

    known = [node.name for node in inputs.view.nodes]
    web = tuple((_deployment(inputs, name, source.namespace), count) for name, count in changes["web"])
    _check_once("--web", [name for name, _ in web])
    _check_once("--label", [key for key, _ in changes["labels"]])
    asked = WhatIfChanges(
        removed=tuple(NodeName(_find("node", text.removeprefix("node/"), known, "")) for text in changes["removed"]),
        added=None if changes["shape"] is None else (changes["add_nodes"], changes["shape"]),
        labels=tuple(changes["labels"]),
        web=web,
        reclaims_idle=changes["reclaim_idle"],
        fairness=None if changes["fairness"] is None else Fairness(changes["fairness"]),
    )
    inputs, words = apply_changes(inputs, asked)
    descriptions = [*words]
    for file in changes["submit"]:
        inputs, more = _with_submission(inputs, file, source)
        descriptions += more
    return inputs, descriptions


def _with_submission(inputs: PlanInputs, file: Path, source: SnapshotSource) -> tuple[PlanInputs, list[str]]:
    from autoscaler.planner.counterfactual import edits  # noqa: PLC0415 - not for --help

    found = source.read_submission(file, inputs.now_s)
    try:
        for workload in found.workloads:
            inputs = edits.with_workload(inputs, workload)
        for job in found.jobs:
            inputs = edits.with_submission(inputs, job)
    except ValueError as error:
        raise CommandError(Exit.REFUSED, f"{file}: {error}; give it another name") from None
    return inputs, [*(f"deployment/{w.name}" for w in found.workloads), *(f"tj/{j.name}" for j in found.jobs)]


def _inputs_of(source: SnapshotSource) -> PlanInputs:
    from autoscaler.planner.counterfactual import PlanInputs  # noqa: PLC0415 - not for --help

    snapshot = source.snapshot
    return PlanInputs(view=snapshot.view, policy=snapshot.policy, now_s=snapshot.now_s)


def _check_job(kind: str) -> None:
    if kind.lower() not in OBJECT_KINDS["tj"]:
        raise click.UsageError(f"only jobs have a size that EDL chooses (tj/NAME); a {kind} has none")


def _check_once(option: str, names: Sequence[str]) -> None:
    """Refuse two values for one name, of which the last would count."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise CommandError(Exit.USAGE, f"{option} names {twice} more than once; give it one value")


def _deployment(inputs: PlanInputs, name: str, namespace: str) -> WorkloadName:
    from autoscaler.domain import WorkloadName  # noqa: PLC0415 - not for --help

    names = [workload.name for workload in inputs.view.workloads]
    if not name and len(names) != 1:
        known = f"NAME is one of {', '.join(names)}" if names else "there is no deployment"
        raise CommandError(Exit.USAGE, f"name the deployment: --web NAME=N; {known}")
    return WorkloadName(_find("deployment", name, names, namespace) if name else names[0])


def _find(kind: str, name: str, names: Sequence[str], namespace: str) -> str:
    """The full name that `name` means: on a cluster NAMESPACE/NAME, in `namespace` or the only one of that name."""
    from autoscaler.manifests.field_errors import did_you_mean  # noqa: PLC0415 - not for --help

    if name in names:
        return name
    candidates = [known for known in names if known.partition("/")[2] == name and known.startswith(f"{namespace}/")]
    if not namespace:
        candidates = [known for known in names if known.partition("/")[2] == name]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise CommandError(Exit.USAGE, f"{kind}/{name} may be {' or '.join(candidates)}; write {kind}/NAMESPACE/NAME")
    kind_hint = " that still has a size (a job that has ended has none)" if kind == "tj" else ""
    none = "no job has a size now" if kind == "tj" else f"there is no {kind} at all"
    hint = did_you_mean(name, list(names)) if names else none
    raise CommandError(Exit.NOT_FOUND, f"there is no {kind}/{name}{kind_hint}; {hint}")
