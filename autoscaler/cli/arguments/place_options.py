"""What the shell offers behind <tab> for a kubeconfig: its contexts, and the namespaces of the cluster.

A cluster has one second to answer (`kubernetes.name_completion`); a failure offers nothing.  `target_completion` offers
the names of objects.
"""

from __future__ import annotations

from typing import Final

import click

from autoscaler.cli.exit_codes import CommandError

COMPLETION_VARIABLE: Final = "_EDL_COMPLETE"


def complete_context(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig."""
    from autoscaler.cli.kubernetes.kubeconfig import read_kubeconfig  # noqa: PLC0415 - not for runs

    try:
        known = read_kubeconfig(context.params.get("kubeconfig")).contexts
    except CommandError:
        return []
    return [name for name in known if name.startswith(incomplete)]


def complete_namespace(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces of the cluster."""
    from autoscaler.cli.kubernetes.name_completion import list_namespaces  # noqa: PLC0415 - not for runs

    params = context.params
    names = list_namespaces(params.get("kubeconfig"), params.get("context"))
    return [name for name in names if name.startswith(incomplete)]
