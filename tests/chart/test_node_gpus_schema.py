"""The definition of NodeGpus bounds what `autoscaler.domain.gpu_reports` bounds (ADR 0283)."""

from pathlib import Path

import yaml

from autoscaler.domain import gpu_reports
from autoscaler.gpus.report_documents import API_VERSION, KIND, PLURAL

CRD = yaml.safe_load(Path("charts/edl/files/nodegpus.yaml").read_text())
(VERSION,) = CRD["spec"]["versions"]
STATUS = VERSION["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def test_names_are_those_that_the_agent_writes():
    """Group, version, kind and plural."""
    assert f"{CRD['spec']['group']}/{VERSION['name']}" == API_VERSION
    assert (CRD["spec"]["names"]["kind"], CRD["spec"]["names"]["plural"]) == (KIND, PLURAL)


def test_bounds_are_those_of_a_report():
    """What the API server takes the operator can read."""
    gpu = STATUS["gpus"]["items"]["properties"]
    assert STATUS["gpus"]["maxItems"] == gpu_reports.MOST_GPUS
    assert gpu["pods"]["maxItems"] == gpu_reports.MOST_PODS
    assert gpu["pods"]["items"]["maxLength"] == gpu_reports.LONGEST_POD
    lengths = {name: gpu[name]["maxLength"] for name in ("uuid", "model", "name", "reason")}
    assert lengths == {
        "uuid": gpu_reports.LONGEST_UUID,
        "model": gpu_reports.LONGEST_MODEL,
        "name": gpu_reports.LONGEST_NAME,
        "reason": gpu_reports.LONGEST_REASON,
    }
    assert gpu["watts"]["maximum"] == gpu_reports.MOST_WATTS
    assert gpu["verdict"]["enum"] == [one.value for one in gpu_reports.GpuVerdict]
