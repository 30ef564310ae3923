"""The command `edl`, and what its --help says."""

from __future__ import annotations

import sys

import click

from autoscaler.cli import changing, files, looking
from autoscaler.cli.exits import EXIT_CODES_HELP, CommandError, Exit
from autoscaler.cli.running import run

HELP = f"""Elastic deep learning: training jobs that give way to web load and take the room back.

\b
Start here:
  edl validate job.yaml                    check a file
  edl run job.yaml web.yaml                run it on this machine, with a live view
\b
From another terminal, while it runs:
  edl get tj                               jobs, sizes and progress (also: nodes, pods, deployments)
  edl scale deployment/web --replicas 6    more web load: watch jobs give way
  edl describe tj/digits                   why this size?
  edl logs tj/digits --trainer 2 -f        what a trainer writes
  edl drain tj/digits --trainer 2          let one finish its batch and leave
  edl wait --for=condition=Completed tj/digits --timeout 10m
  edl data audit tj/digits                 which samples the last checkpoint holds
\b
Things are named as with kubectl: TYPE/NAME or TYPE NAME, where TYPE is tj (trainingjob), node, pod or deployment.
The run that is meant: --run DIR, else $EDL_RUN, else the newest live one below ./runs.

{EXIT_CODES_HELP}
"""


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def edl() -> None:
    """See HELP."""


for command in (
    run,
    files.validate,
    looking.get,
    looking.describe,
    looking.logs,
    looking.events,
    looking.wait,
    changing.scale,
    changing.drain,
    changing.uncordon,
    changing.suspend,
    changing.resume,
    changing.delete,
    files.data,
    files.bundle,
    files.completion,
    files.version,
):
    edl.add_command(command)


def main() -> None:
    """Run the command line; the exit code is one of `exits.Exit`."""
    try:
        sys.exit(edl.main(prog_name="edl", standalone_mode=False))
    except CommandError as error:
        print(f"edl: {error.message}", file=sys.stderr)
        sys.exit(error.code)
    except click.Abort:
        sys.exit(Exit.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as with `edl events | head`
        sys.exit(Exit.OK)
