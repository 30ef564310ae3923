"""`edl page`: the page of a cluster, served on this machine with the user's own credentials."""

from __future__ import annotations

import click

from autoscaler.cli.arguments.place_options import listing_place_options
from autoscaler.cli.arguments.place_selection import PlaceKind, PlaceSelector, choose_place, observe_environment
from autoscaler.cli.exit_codes import CommandError, Exit


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on the loopback address (default: any that is free)."
)
@listing_place_options
def page(*, port: int, selector: PlaceSelector) -> None:
    """Show a cluster in the browser: who has it, what for, and why.

    The page is served on this machine, with the credentials of your kubeconfig: it shows what you may read, and nothing
    in the cluster has to be installed for it.  Ctrl-C ends it.  Shown is the whole cluster if you may read it, else
    your namespace; -n and -A choose.

    \b
    edl page
    edl page -n team-a --port 8090
    """  # noqa: D301 - click keeps the lines after this mark as they are
    if choose_place(selector, observe_environment(click.get_current_context())).kind is PlaceKind.LOCAL:
        hint = (
            "edl page shows a cluster, and none is meant here: add --on kubernetes for that of your kubeconfig, or "
            "name one by --kubeconfig; a run of this machine prints the address of its own page at its start"
        )
        raise CommandError(Exit.NOT_FOUND, hint)
    from autoscaler.cli.kubernetes.served_page import ShownNamespaces, serve_page  # noqa: PLC0415 - not for --help

    shown = ShownNamespaces(named=selector.namespace, is_all=selector.is_all_namespaces)
    serve_page(selector.kubeconfig, selector.context, shown, port=port)
