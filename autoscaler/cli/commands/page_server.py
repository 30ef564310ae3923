"""`edl page-server`: the page of a cluster, as the chart starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autoscaler.cli.arguments.parameter_types import HostPort
from autoscaler.cli.exit_codes import CommandError, Exit


@click.command("page-server")
@click.option("--listen", type=HostPort(), default="0.0.0.0:8090", show_default=True, help="Address of the page.")
@click.option(
    "--probes", type=HostPort(), default="0.0.0.0:8080", show_default=True, help="Address of /healthz and /readyz."
)
@click.option("--hosts", default="", help="Comma-separated host names under which viewers ask, beside localhost.")
@click.option("--title", default="Kubernetes", show_default=True, help="Name of the cluster, for people.")
@click.option("--namespaces", default="", help="Comma-separated namespaces to show (default: all).")
@click.option("--audiences", default="", help="Comma-separated audiences of tokens (default: the API server's).")
@click.option("--policy", default="", help="NAMESPACE/NAME of the policy's ConfigMap: answer what-if questions by it.")
@click.option("--prometheus", default="", help="Address of a Prometheus that scrapes EDL: draw the past from it.")
@click.option("--prometheus-labels", default="", help="NAME=VALUE,...: labels of this cluster's series there.")
@click.option("--tls-cert", type=click.Path(path_type=Path), default=None, help="Certificate: serve HTTPS.")
@click.option("--tls-key", type=click.Path(path_type=Path), default=None, help="Key of the certificate.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), default=None, help="Kubeconfig file, to run outside the cluster."
)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True
)
def page_server(*, log_level: str, **options: Any) -> None:
    """Serve the page of a cluster: each viewer sees what the API server lets them read.

    A viewer is known by a token of the cluster's in the header Authorization.  The chart starts it with page.enabled.

    \b
    edl page-server --kubeconfig FILE --listen 127.0.0.1:8090
    """  # noqa: D301 - click keeps the lines after this mark as they are
    import asyncio  # noqa: PLC0415 - not for --help

    from autoscaler.cli.kubernetes.kept_snapshot import KeptSnapshot  # noqa: PLC0415 - with it
    from autoscaler.cluster_page.page_process import PageProcessSettings, run_page_process  # noqa: PLC0415 - with it
    from autoscaler.cluster_page.prometheus_history import labels_of  # noqa: PLC0415 - with it
    from autoscaler.errors import AutoscalerError  # noqa: PLC0415 - with it
    from autoscaler.operator.process.main import set_up_logs  # noqa: PLC0415 - with it

    try:
        labels = labels_of(_names(options["prometheus_labels"]))
    except AutoscalerError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    settings = PageProcessSettings(
        listen=options["listen"],
        probes=options["probes"],
        title=options["title"],
        hosts=frozenset(name.lower() for name in _names(options["hosts"])),
        namespaces=_names(options["namespaces"]),
        audiences=_names(options["audiences"]),
        kubeconfig=options["kubeconfig"],
        certificate=options["tls_cert"],
        key=options["tls_key"],
        policy=_object("--policy", options["policy"]) if options["policy"] else None,
        prometheus=options["prometheus"] or None,
        prometheus_labels=labels,
    )
    if (settings.certificate is None) != (settings.key is None):
        raise CommandError(Exit.USAGE, "--tls-cert and --tls-key go together")
    set_up_logs(log_level)
    try:
        asyncio.run(run_page_process(settings, KeptSnapshot(settings.policy)))
    except AutoscalerError as error:
        raise CommandError(Exit.FAILED, str(error)) from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _object(option: str, text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise CommandError(Exit.USAGE, f"{option} {text}: write NAMESPACE/NAME, as in edl-system/edl-policy")
    return namespace, name
