"""Entry points of the command line: `edl`, and `kubectl edl` as a plug-in of kubectl."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from errno import ENOSPC
from typing import Final

import click

from autoscaler.cli.arguments.place_selection import PLUGIN
from autoscaler.cli.command_sections import CommandSection, SectionedGroup
from autoscaler.cli.commands import about, bundle, changes, data, inspection, planning, snapshot
from autoscaler.cli.commands.agent import agent
from autoscaler.cli.commands.export import export
from autoscaler.cli.commands.launch import launch
from autoscaler.cli.commands.operator import operator
from autoscaler.cli.commands.page import page
from autoscaler.cli.commands.page_server import page_server
from autoscaler.cli.commands.run import run
from autoscaler.cli.commands.top import top
from autoscaler.cli.commands.validate import validate
from autoscaler.cli.exit_codes import EXIT_CODES_HELP, CommandError, Exit
from autoscaler.cli.terminal import reopen_closed_streams, replace_unencodable_characters
from master.api.host.log_lines import escape_controls

HELP = f"""Elastic deep learning: training jobs that shrink for web load and grow back afterwards.

\b
Start here:
  edl launch --trainers 1:8 train.py     run a script on this machine
  edl validate job.yaml                  check a file
  edl run job.yaml web.yaml              run it here, with a live view
\b
From another terminal, while it runs; the same on a Kubernetes cluster:
  edl get tj                             jobs (nodes, pods, deployments, gpus)
  edl top                                who holds GPUs, and which ones work
  edl scale deployment/web --replicas 9  more web load: watch jobs shrink
  edl describe tj/digits                 its state, pods and last resizes
  edl why tj/digits                      why this size; what would give more
  edl what-if --web web=12               sizes of jobs with another load
  edl logs tj/digits --trainer 2 -f      what a trainer writes
  edl drain tj/digits --trainer 2        let one finish its batch and leave
  edl wait --for=condition=Completed tj/digits --timeout 10m
  edl data audit tj/digits               which samples the checkpoint holds
  edl export tj/digits model.npz         its model, as a file for other tools
\b
Objects are named as with kubectl: TYPE/NAME or TYPE NAME, where TYPE is
tj (trainingjob), node, pod, deployment or gpus.
\b
Which run or cluster is meant:
  --run DIR                              that run on this machine
  --context, --kubeconfig, -n, -A        that cluster, or its namespace
  kubectl edl ...                        the cluster of the current context
  else $EDL_ON (local or kubernetes), else $EDL_RUN, else the newest live run
  below ./runs, else the current context of $KUBECONFIG or ~/.kube/config.
  --on local and --on kubernetes choose where both are at hand.

{EXIT_CODES_HELP}
"""


SECTIONS: Final[Mapping[str, CommandSection]] = {
    "Start": {
        launch: "Run a training script as a job, without a job file.",
        run: "Run job files on virtual nodes of this machine.",
        validate: "Check job files, and start nothing.",
    },
    "See": {
        inspection.get: "List jobs (tj), nodes, pods, deployments or gpus.",
        inspection.describe: "Show one object: its state, pods, resizes and events.",
        top: "Show who holds GPUs, and who works.",
        page: "Show a cluster in the browser.",
        inspection.logs: "Print what a pod has written.",
        inspection.events: "List what has happened: starts, drains, failures, decisions.",
        inspection.wait: "Wait until a condition holds.",
    },
    "Sizes": {
        planning.why: "Explain a job's size, and what would raise it.",
        planning.plan: "Print the plan that the planner would make now.",
        planning.what_if: "Print sizes with other nodes, other load or another job.",
        snapshot.snapshots: "Save what the planner sees: a bug report about sizes.",
    },
    "Change": {
        changes.scale: "Set a deployment's replicas, or pin a job's size.",
        changes.drain: "Let a trainer finish its batch and leave, or empty a node.",
        changes.uncordon: "Open a drained node again.",
        changes.suspend: "Commit a checkpoint, then end all pods of a job.",
        changes.resume: "Let a suspended job start again, from its last checkpoint.",
        changes.keep: "Leave a pod its GPUs for a while although nobody uses them.",
        changes.delete: "Delete a job, a deployment or one pod.",
    },
    "Checkpoints": {
        data.data: "Audit and verify checkpoints.",
        export: "Write the model of a checkpoint as a file for other tools.",
    },
    "Processes of a cluster": {
        operator: "Run the operator: it sizes TrainingJobs beside web load.",
        page_server: "Serve the page of a cluster to all who may read there.",
        agent: "Watch a node's GPUs: which compute, and which are only held.",
    },
    "Others": {
        bundle.bundle: "Pack a run's folder into one archive, as a bug report.",
        about.completion: "Print the completion script for a shell.",
        about.version: "Print the versions of EDL and its dependencies.",
    },
}


@click.version_option(package_name="edl", prog_name="edl")
@click.group(
    cls=SectionedGroup,
    sections=SECTIONS,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
def edl() -> None:
    """The command group `edl`; its help text is HELP."""


def main(name: str = "edl") -> None:
    """Run the command line; the exit code is one of `exit_codes.Exit`."""
    reopen_closed_streams()
    replace_unencodable_characters()
    if about.COMPLETION_VARIABLE in os.environ:
        edl.main(prog_name=name, complete_var=about.COMPLETION_VARIABLE)
    try:
        code = run_command(name)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has ended, as with `edl events | head`
        code = Exit.OK
        drop_output()
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        message = f"edl: {error.filename or 'standard output'} cannot be written: {error.strerror}"
        print(escape_controls(message), file=sys.stderr)
        code = Exit.FAILED
        drop_output()
    sys.exit(code)


def run_command(name: str) -> int:
    """Run the subcommand and return the exit code; errors are printed to standard error."""
    try:
        with edl.make_context(name, sys.argv[1:]) as context:
            edl.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except CommandError as error:
        print(escape_controls(f"edl: {error.message}"), file=sys.stderr)
        return error.code
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return Exit.OK


def drop_output() -> None:
    """Discard unwritten output; otherwise Python would try to flush it at exit, and print an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plugin() -> None:
    """`kubectl edl`, which kubectl finds as `kubectl-edl` on the PATH; it means a cluster unless --run is given."""
    main(PLUGIN)
