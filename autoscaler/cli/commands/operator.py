"""`edl operator`: the operator process of a Kubernetes cluster, as the chart starts it."""

from __future__ import annotations

from pathlib import Path

import click

from autoscaler.cli.exit_codes import CommandError, Exit


@click.command()
@click.option(
    "--listen", default="0.0.0.0:8080", show_default=True, help="Address that serves /healthz, /readyz and /metrics."
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    default=None,
    help="YAML file with the policy, as in the chart's ConfigMap.",
)
@click.option("--lease", required=True, metavar="NAMESPACE/NAME", help="Lease for leader election.")
@click.option("--namespaces", default="", help="Comma-separated namespaces whose jobs are managed (default: all).")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), default=None, help="Kubeconfig file, to run outside the cluster."
)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True
)
def operator(
    *,
    listen: str,
    policy_file: Path | None,
    lease: str,
    namespaces: str,
    kubeconfig: Path | None,
    log_level: str,
) -> None:
    """Run EDL on a Kubernetes cluster: sizes TrainingJobs beside web workloads.

    The chart in charts/edl starts it.  From the environment: EDL_NAME, EDL_IMAGE and EDL_ETCD_*.

    \b
    edl operator --lease edl-system/edl-operator --policy policy.yaml
    """  # noqa: D301 - click keeps the lines after this mark as they are
    import asyncio  # noqa: PLC0415 - not for --help
    import os  # noqa: PLC0415 - with it

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it logs every master that does not answer yet

    from autoscaler.errors import AutoscalerError, InvalidSpecError  # noqa: PLC0415 - with it
    from autoscaler.operator.process.main import run, set_up_logs  # noqa: PLC0415 - kopf and Kubernetes cost a second
    from autoscaler.operator.process.operator_settings import read_settings  # noqa: PLC0415 - with it

    try:
        settings = read_settings(
            listen=listen,
            lease=lease,
            policy_file=policy_file,
            namespaces=namespaces,
            kubeconfig=kubeconfig,
            log_level=log_level,
        )
    except InvalidSpecError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    set_up_logs(settings.log_level)
    try:
        asyncio.run(run(settings))
    except AutoscalerError as error:
        raise CommandError(Exit.FAILED, str(error)) from None
