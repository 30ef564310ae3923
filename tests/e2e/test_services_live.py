"""Names and Services, as kube-proxy and CoreDNS make them work between real pods on two nodes."""

import json

import pytest
from kubernetes import client

from tests.e2e.conftest import NODES
from tests.e2e.pods import make_pod
from tests.harness.waiting import wait_for

ASK = """
import json, socket, sys, time, urllib.request
name, wanted = sys.argv[1], int(sys.argv[2])
answers, deadline, refusal = set(), time.monotonic() + 180, None
while len(answers) < wanted and time.monotonic() < deadline:
    try:
        answers.add(urllib.request.urlopen("http://" + name, timeout=5).read().decode().strip())
    except OSError as error:  # a pod is ready before this node's kube-proxy and CoreDNS have heard of it
        refusal = repr(error)
        time.sleep(0.2)
address = socket.gethostbyname(name)
print(json.dumps({"address": address, "answers": sorted(answers), "refusal": refusal}))
"""
RESOLVE = """
import socket, sys, time
for _ in range(900):  # a name that has just been made may take a moment
    try:
        print(socket.gethostbyname(sys.argv[1]))
        break
    except socket.gaierror:
        time.sleep(0.2)
else:
    sys.exit("no such name")
"""
API = """
import json, ssl, time, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
trusted = ssl.create_default_context(cafile=folder + "ca.crt")
headers = {"Authorization": "Bearer " + open(folder + "token").read()}
request = urllib.request.Request("https://kubernetes.default.svc/version", headers=headers)
deadline = time.monotonic() + 180
while True:
    try:
        print(json.load(urllib.request.urlopen(request, context=trusted, timeout=30))["gitVersion"])
        break
    except urllib.error.HTTPError:
        raise
    except OSError:  # this node's kube-proxy and CoreDNS may be busy
        if time.monotonic() > deadline:
            raise
        time.sleep(0.2)
"""


@pytest.fixture
def web(api, core, namespace):
    """Two nginx pods, one on each node, behind a Service; the names of the pods."""
    labels = {"app": "web"}
    pod = make_pod(
        "", "nginx", container={"readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}}
    )
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    spec = {**pod["spec"], "restartPolicy": "Always", "topologySpreadConstraints": [spread]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(
        namespace,
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
        },
    )
    core.create_namespaced_service(
        namespace,
        {"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}},
    )
    wait_for("web is ready", lambda: apps.read_namespaced_deployment("web", namespace).status.ready_replicas == 2)
    return {pod.metadata.name for pod in core.list_namespaced_pod(namespace, label_selector="app=web").items}


@pytest.mark.parametrize("node", NODES)
def test_nginx_answers_by_the_name_of_its_service_from_either_node(pods, core, namespace, web, node):
    """The name leads to the Service's address, and that to both pods, across the nodes."""
    code, said = pods.finish(make_pod("asks", "trainer", ["python", "-c", ASK, "web", "2"], nodeName=node))
    assert code == 0, said
    answer = json.loads(said)
    assert answer["address"] == core.read_namespaced_service("web", namespace).spec.cluster_ip
    assert set(answer["answers"]) == web, answer


def test_a_headless_service_names_each_pod(pods, core, namespace):
    """As the master's does: its members find the masters by it, ready or not."""
    labels = {"app": "headless"}
    ports = [{"port": 7164}]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels, "ports": ports}
    core.create_namespaced_service(namespace, {"metadata": {"name": "masters"}, "spec": spec})
    never = {"readinessProbe": {"exec": {"command": ["false"]}}}
    name = pods.create(make_pod("waits", "busybox", ["sleep", "3600"], labels=labels, container=never))
    address = wait_for("it has an address", lambda: pods.read(name).status.pod_ip)
    code, said = pods.finish(make_pod("asks", "trainer", ["python", "-c", RESOLVE, f"masters.{namespace}.svc"]))
    assert (code, said) == (0, f"{address}\n")


def test_a_pod_reaches_the_api_server_by_its_own_account(pods):
    """As the operator does: the address of the Service, the certificate's name and the token all fit."""
    code, said = pods.finish(make_pod("asks", "trainer", ["python", "-c", API]))
    assert (code, said[:2]) == (0, "v1"), said
