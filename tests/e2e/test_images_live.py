"""The images of EDL run as they are built: by their Dockerfiles' own steps."""

import pytest

from tests.e2e.pods import make_pod
from tests.harness.waiting import wait_for

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
MASTER = {
    "EDL_ETCD_ENDPOINTS": "etcd:2379",
    "EDL_JOB": "digits",
    "EDL_LISTEN": "0.0.0.0:7164",
    "EDL_CHECKPOINT_URI": "/tmp/checkpoints",
}
CONTAINER = {"securityContext": RESTRICTED, "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
TMP = [{"name": "tmp", "emptyDir": {}}]


def restricted(name, image, command=()):
    return make_pod(name, image, command, container=CONTAINER, volumes=TMP)


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("trainer", "import trainer_sdk, numpy; print(numpy.ones(3).sum())"),
        ("master", "import master.__main__, master.store.etcd; print(3.0)"),
        ("operator", "import autoscaler.cli.main, kopf, kubernetes; print(3.0)"),
    ],
)
def test_what_an_image_is_for_can_be_imported_without_any_rights(pods, image, code):
    """As user 65532, on a root file system that cannot be written."""
    assert pods.finish(restricted(f"imports-{image}", image, ["python", "-c", code])) == (0, "3.0\n")


def test_only_the_operators_image_can_steer_the_cluster(pods):
    """A smaller image is a smaller thing to guard."""
    for image in ("trainer", "master"):
        code, _ = pods.finish(restricted(f"lacks-{image}", image, ["python", "-c", "import kubernetes"]))
        assert code == 1


def test_the_operators_command_answers(pods):
    code, said = pods.finish(restricted("help", "operator", ["edl", "--help"]))
    assert code == 0
    assert "Usage" in said


def test_a_master_leads_its_job_with_etcd_in_the_cluster(pods, etcd):
    """The image's own command: it finds etcd by name, takes the lead and serves."""
    master = restricted("master", "master")
    master["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in MASTER.items()]
    name = pods.run(master)
    wait_for("it leads", lambda: "serves job digits" in pods.logs(name))
