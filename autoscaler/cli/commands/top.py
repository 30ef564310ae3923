"""`edl top`: who holds what, and who works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from autoscaler.cli.arguments.options import output_option
from autoscaler.cli.arguments.place_options import listing_place_options
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.place_values import TopOrder, TopSubject
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # not for --help
    from autoscaler.cli.kubernetes.top_lines import TopLine

LOOK_EVERY_S: Final = 5.0
"""Between two looks of --watch: agents sample as often."""

_WORDS: Final = {
    **dict.fromkeys(("jobs", "job", "tj", "trainingjobs"), TopSubject.JOBS),
    **dict.fromkeys(("nodes", "node", "no"), TopSubject.NODES),
    **dict.fromkeys(("pods", "pod", "po"), TopSubject.PODS),
}


@click.command()
@click.argument("subject", type=click.Choice(list(_WORDS)), default="jobs", metavar="[jobs|nodes|pods]")
@output_option
@click.option(
    "--sort-by",
    type=click.Choice([order.value for order in TopOrder]),
    default=None,
    help="By a name, or by a figure with the largest first (default: most held GPUs first; nodes by name).",
)
@click.option("--no-headers", is_flag=True, help="Leave the heading of the table out.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Print again when something has changed.")
@listing_place_options
def top(
    *, subject: str, output: str, sort_by: str | None, no_headers: bool, is_watching: bool, selector: PlaceSelector
) -> None:
    """Show who holds GPUs, and who works: by job, and pods of no job that have GPUs; by node, or by pod.

    BUSY is the share of samples in which somebody computed, since the report before.  CPU and MEMORY are in use, where
    the metrics API or the run tells them.

    \b
    edl top
    edl top nodes -o wide
    edl top pods -A --sort-by held-for
    edl top -w
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.kubernetes.top_lines import sort_lines  # noqa: PLC0415 - not for --help

    with selector.open() as place:

        def read() -> list[TopLine]:
            lines = place.top(_WORDS[subject])
            return lines if sort_by is None else sort_lines(lines, TopOrder(sort_by))

        has_namespaces = place.has_namespaces and _WORDS[subject] is not TopSubject.NODES
        texts = _texts(
            read, output, has_namespaces=has_namespaces, has_heading=not no_headers, is_single=not is_watching
        )
        for text in changes(texts, time.sleep) if is_watching else (next(texts),):
            print(escape_controls(text), flush=True)


def _texts(
    read: Callable[[], list[TopLine]], output: str, *, has_namespaces: bool, has_heading: bool, is_single: bool
) -> Iterator[str]:
    """What is true now, at each step: a table, one document, or one line of JSON where there are several."""
    from autoscaler.cli.kubernetes.top_tables import format_top, line_content  # noqa: PLC0415 - not for --help

    while True:
        lines = read()
        if output == "json" and not is_single:
            yield json.dumps({"kind": "List", "items": [line_content(one) for one in lines]})
            continue
        text = format_top(lines, output, has_namespaces=has_namespaces, has_heading=has_heading)
        yield f"---\n{text}" if output == "yaml" and not is_single else text


def changes(texts: Iterator[str], pause: Callable[[float], None]) -> Iterator[str]:
    """Each text that differs from the one before, for ever; `pause` is called between two looks with the seconds."""
    before: str | None = None
    for text in texts:
        if text != before:
            yield text
            before = text
        pause(LOOK_EVERY_S)
