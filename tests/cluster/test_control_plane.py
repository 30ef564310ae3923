"""The control plane itself: it serves, it knows who asks, and nothing of it is left."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.accounts import open_client
from tests.cluster.command_lines import HOST
from tests.cluster.control_plane import start_control_plane
from tests.harness.attacker import attack, needs_root
from tests.harness.errors import StartError
from tests.harness.waiting import BUDGET_S, wait_for

ROOT = Path(__file__).resolve().parents[2]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_serves_the_pinned_version_to_the_administrator(control_plane):
    answer = control_plane.kubectl("version", "-o", "yaml")
    assert answer.count("gitVersion: v1.36.3") == 2  # client and server


def test_helm_reaches_it(control_plane):
    assert control_plane.helm("list", "--short") == ""


def test_nobody_without_a_certificate_or_token_is_heard(control_plane, tmp_path):
    settings = client.Configuration(host=control_plane.layout.server)
    settings.ssl_ca_cert = str(control_plane.authority)
    with client.ApiClient(settings) as stranger, pytest.raises(ApiException) as refused:
        client.CoreV1Api(stranger).list_node()
    assert refused.value.status == 401


@needs_root
def test_another_user_and_a_web_page_write_nothing_into_what_the_cluster_knows(control_plane):
    """Its etcd answered everybody on loopback, in JSON too: a stranger was the administrator, secrets and all."""
    ports = control_plane.layout.ports
    assert attack(ports=[ports.etcd, ports.etcd_peer]) == {}


def test_who_shows_no_certificate_of_etcds_own_authority_is_not_heard(control_plane):
    """Those of the cluster's authority are pods', and people's."""
    layout = control_plane.layout
    context = ssl.create_default_context(cafile=layout.etcd_authority)
    context.load_cert_chain(layout.serving.certificate, layout.serving.key)
    for port in (layout.ports.etcd, layout.ports.etcd_peer):
        with pytest.raises(ssl.SSLError):
            answer_of(port, context)


def answer_of(port, context):
    with (
        socket.create_connection((HOST, port), timeout=BUDGET_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as door,
    ):
        door.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        return door.recv(1)


def test_an_account_may_do_what_a_role_gives_it_and_nothing_else(account, api, namespace):
    """The kubeconfig of a ServiceAccount has the rights of the account, as the chart's will."""
    kubeconfig = account("reader")
    rbac = client.RbacAuthorizationV1Api(api)
    rbac.create_namespaced_role(
        namespace,
        {"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]},
    )
    rbac.create_namespaced_role_binding(
        namespace,
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        },
    )
    with open_client(kubeconfig) as reader:
        core = client.CoreV1Api(reader)
        wait_for("the role", lambda: _status(lambda: core.list_namespaced_pod(namespace)) == 200)
        assert _status(lambda: core.list_namespaced_secret(namespace)) == 403
        assert _status(lambda: core.list_namespaced_pod("kube-system")) == 403
        assert _status(core.list_node) == 403


def test_a_program_that_cannot_start_is_told_with_its_last_words(cluster_tools, tmp_path):
    flags = {"kube-apiserver": ["--no-such-flag"]}
    with (
        pytest.raises(StartError, match="unknown flag: --no-such-flag"),
        start_control_plane(tmp_path, cluster_tools, more_flags=flags),
    ):
        pass


def test_nothing_is_left_when_its_owner_is_killed(cluster_tools, tmp_path):
    """Killed with SIGKILL, so that nobody could tidy up."""
    program = textwrap.dedent(
        """
        import os, sys, time
        from pathlib import Path
        from tests.cluster.control_plane import start_control_plane
        from tests.cluster.toolbox import find_tools
        with start_control_plane(Path(sys.argv[1]), find_tools(os.environ)) as running:
            print(*(program.pid for program in running.programs.values()), flush=True)
            time.sleep(600)
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        pids = [int(word) for word in owner.stdout.readline().split()]
        owner.send_signal(signal.SIGKILL)
    assert len(pids) == 5
    wait_for("its processes gone", lambda: not any(is_alive(pid) for pid in pids))


def _status(ask):
    try:
        ask()
    except ApiException as error:
        return error.status
    return 200
