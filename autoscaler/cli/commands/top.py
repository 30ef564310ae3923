"""`edl top`: who holds what, and who works."""

from __future__ import annotations

import click

from autoscaler.cli.arguments.place_options import listing_place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.place_values import TopSubject
from master.api.host.log_lines import escape_controls

_WORDS = {
    **dict.fromkeys(("jobs", "job", "tj", "trainingjobs"), TopSubject.JOBS),
    **dict.fromkeys(("nodes", "node", "no"), TopSubject.NODES),
    **dict.fromkeys(("pods", "pod", "po"), TopSubject.PODS),
}


@click.command()
@click.argument("subject", type=click.Choice(list(_WORDS)), default="jobs", metavar="[jobs|nodes|pods]")
@listing_place_options
def top(*, subject: str, selector: PlaceSelector) -> None:
    """Show who holds GPUs, and who works: by job, and pods of no job that have GPUs; by node, or by pod.

    BUSY is the share of samples in which somebody computed, since the report before.  CPU and MEMORY are in use, where
    the metrics API or the run tells them.

    \b
    edl top
    edl top nodes
    edl top pods -A
    """  # noqa: D301 - click keeps the lines after this mark as they are
    with selector.open() as place:
        for line in place.top(_WORDS[subject]):
            print(escape_controls(line))
