"""Check that the cluster's TrainingJob CRD is new enough for this operator.

helm does not upgrade a CRD installed with `crd.install: false`, and a user may roll a CRD back.  An older CRD
silently drops unknown fields: what users wrote and what EDL reports.  The operator then reports the problem
(`problem`) and creates no pods; running pods continue.  Without optional fields alone it works on, and logs that once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.errors import ClusterError
from autoscaler.operator.store.job_store import JobStore

NAME: Final = f"{TRAINING_JOBS.plural}.{TRAINING_JOBS.group}"
REVISION: Final = "edl.dev/crd-revision"  # an annotation
NEEDED: Final = 2
CURRENT: Final = 8
"""Revision of charts/edl/files/trainingjobs.yaml; those from NEEDED on lack optional fields alone."""

CHECK_EVERY_S: Final = 60.0
CHECK_AGAIN_S: Final = 5.0  # while there is a problem

log = logging.getLogger(__name__)


def problem_of(definition: Mapping[str, Any] | None) -> str:
    """Return what is wrong with the definition and what to do; empty: nothing."""
    if definition is None:
        return f"there is no CustomResourceDefinition {NAME}; apply charts/edl/files/trainingjobs.yaml"
    revision = text(definition, "metadata", "annotations", REVISION) or "0"
    if revision.isdecimal() and int(revision) >= NEEDED:
        return ""
    return (
        f"CustomResourceDefinition {NAME} is older than this operator (revision {revision[:20]}, at least {NEEDED} is "
        "needed): no pod is made; upgrade the chart with crd.install, or apply charts/edl/files/trainingjobs.yaml"
    )


def missing_of(definition: Mapping[str, Any]) -> str:
    """Return what a definition without `problem_of` lacks and what to do; empty: nothing."""
    revision = text(definition, "metadata", "annotations", REVISION)
    if not revision.isdecimal() or not NEEDED <= int(revision) < CURRENT:
        return ""
    return (
        f"CustomResourceDefinition {NAME} has revision {revision}, and this operator's is {CURRENT}: newer optional "
        "fields of jobs and of their status are dropped; apply charts/edl/files/trainingjobs.yaml"
    )


class DefinitionCheck:
    """Writes `definition_problem` into the store; when it changes, all jobs are reconciled and planned again."""

    def __init__(self, api: Api, store: JobStore) -> None:
        self._api = api
        self._store = store
        self._missing = ""  # what was logged last

    async def run(self) -> None:
        """Check now and then, until cancelled."""
        while True:
            is_known = await self.check()
            await asyncio.sleep(CHECK_EVERY_S if is_known and not self._store.definition_problem else CHECK_AGAIN_S)

    async def check(self) -> bool:
        """Return True if an answer came; without one the last problem is kept."""
        try:
            definition = await self._api.get(CUSTOM_RESOURCE_DEFINITIONS, NAME)
            problem, missing = problem_of(definition), missing_of(definition)
        except NotFoundError:
            problem, missing = problem_of(None), ""
        except ClusterError as error:
            log.warning("the definition of TrainingJob cannot be read: %s", error)
            return False
        if missing and missing != self._missing:
            log.warning("%s", missing)
        self._missing = missing
        if problem != self._store.definition_problem:
            if problem:
                log.error("%s", problem)
            else:
                log.info("the TrainingJob CRD is new enough again")
            self._store.definition_problem = problem
            self._store.to_reconcile.add_all(self._store.objects.jobs)
            self._store.request_plan()
        return True
