"""The page in a cluster, on a real API server: the chart's account, users with tokens, and what each of them sees."""

import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoscaler.cluster_page.viewer_access import YES_KEPT_S
from autoscaler.clusters.kubernetes.objects.fields import to_micro_time, unix_s
from tests.cluster.accounts import open_client, write_account_kubeconfig
from tests.cluster.chart_control_plane import NAMESPACE, start_charted
from tests.cluster.trainingjobs import make_job
from tests.cluster.viewers import create_viewer, may_read
from tests.harness.processes import Program
from tests.harness.waiting import BUDGET_S, wait_for

VIEW = ("trainingjobs.edl.dev", "pods", "deployments.apps", "events")
PATHS = ("/", "/waiting", "/decisions", "/time", "/what-if", "/api/now", "/api/time/time")


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    values = ("page.enabled=true",)
    folder = tmp_path_factory.mktemp("page")
    with start_charted(folder, cluster_tools, namespaces=["red", "blue"], values=values) as running:
        for team in ("red", "blue"):
            body = make_job(**{"metadata.name": f"{team}-digits", "metadata.namespace": team})
            running.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        yield running


@pytest.fixture(scope="module")
def page(plane, tmp_path_factory):
    """The page's process with the account that the chart gives it; its address."""
    with open_client(plane.kubeconfig) as api:
        kubeconfig = write_account_kubeconfig(
            tmp_path_factory.mktemp("account") / "kubeconfig",
            api,
            authority=plane.authority,
            namespace=NAMESPACE,
            account="edl-page",
        )
    with serve(kubeconfig, tmp_path_factory.mktemp("process")) as address:
        yield address


@contextmanager
def serve(kubeconfig, folder):
    command = [str(Path(sys.executable).with_name("edl")), "page-server", "--kubeconfig", str(kubeconfig)]
    command += ["--listen", "127.0.0.1:0", "--probes", "127.0.0.1:0"]
    program = Program("page", command, folder)
    log = folder / "page.log"
    try:
        wait_for("it listens", lambda: "listens on port" in log.read_text(encoding="utf-8"))
        port, probes = re.findall(r"listens on port (\d+), probes on port (\d+)", log.read_text(encoding="utf-8"))[0]
        wait_for("it is ready", lambda: get(f"http://127.0.0.1:{probes}/readyz")[0] == 200)
        yield f"http://127.0.0.1:{port}"
    finally:
        program.kill()
        sys.stdout.write(log.read_text(encoding="utf-8")[-4000:])


def get(address, token=""):
    """Status and text."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=BUDGET_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirection to the caller."""

    def redirect_request(self, *_):
        return None


def post(address, token, form, *, origin):
    """Status of the answer to a form."""
    headers = {"Authorization": f"Bearer {token}", "Origin": origin}
    request = urllib.request.Request(address, data=urllib.parse.urlencode(form).encode(), headers=headers)
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=BUDGET_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def give_logs(plane, namespace, name):
    """Let the viewer read logs; it is in effect afterwards, since the page keeps a no for minutes."""
    place = ("-n", namespace)
    plane.kubectl("create", "role", f"{name}-logs", *place, "--verb=get", "--resource=pods/log")
    account = f"--serviceaccount={namespace}:{name}"
    plane.kubectl("create", "rolebinding", f"{name}-logs", *place, f"--role={name}-logs", account)
    wait_for("the right", lambda: may_read(plane, namespace, name, "pods/log", verb="get"))


@pytest.fixture(scope="module")
def tokens(plane):
    """Of a viewer in each namespace."""
    found = {team: create_viewer(plane, team, f"{team}-viewer", lists=VIEW) for team in ("red", "blue")}
    for team in found:
        give_logs(plane, team, f"{team}-viewer")
    return found


@pytest.mark.parametrize(("team", "other"), [("red", "blue"), ("blue", "red")])
def test_each_viewer_sees_their_namespace_alone(page, tokens, team, other):
    """No page, no JSON and no stream has a word of the other namespace."""
    wait_for("the job is seen", lambda: f"{team}-digits" in get(f"{page}/api/now", tokens[team])[1])
    for path in (*PATHS, f"/jobs/{team}/{team}-digits"):
        status, text = get(page + path, tokens[team])
        assert status == 200
        assert other not in text
    assert get(f"{page}/jobs/{other}/{other}-digits", tokens[team])[0] == 404
    headers = {"Authorization": f"Bearer {tokens[team]}"}
    request = urllib.request.Request(f"{page}/live/now", headers=headers)
    with urllib.request.urlopen(request, timeout=BUDGET_S) as stream:
        part = b""
        while b"event: part" not in part or not part.endswith(b"\n\n"):
            part += stream.read1(65_536)
    assert f"{team}-digits".encode() in part
    assert other.encode() not in part


def test_a_pod_is_kept_by_who_may_patch_it_and_by_nobody_else(plane, page, tokens):
    """Under the viewer's own token, which the API server judges: the page's account has no right to write."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alice-0", "namespace": "red"},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    address = f"{page}/pods/red/alice-0"
    wait_for("the pod is seen", lambda: get(address, tokens["red"])[0] == 200)
    uid = plane.kubectl("get", "pod", "alice-0", "-n", "red", "-o", "jsonpath={.metadata.uid}")

    def kept_until():
        pod = json.loads(plane.kubectl("get", "pod", "alice-0", "-n", "red", "-o", "json"))
        return pod["metadata"].get("annotations", {}).get("edl.dev/keep-until")

    assert "<form" not in get(address, tokens["red"])[1]
    for team, status in (("red", 403), ("blue", 404)):
        assert post(f"{address}/keep", tokens[team], {"for": "2h", "uid": uid}, origin=page) == status
    assert kept_until() is None
    owner = create_viewer(plane, "red", "red-owner", lists=VIEW)
    give_logs(plane, "red", "red-owner")
    plane.kubectl("create", "role", "owner", "-n", "red", "--verb=patch", "--resource=pods")
    account = "--serviceaccount=red:red-owner"
    plane.kubectl("create", "rolebinding", "owner", "-n", "red", "--role=owner", account)
    wait_for("the right", lambda: may_read(plane, "red", "red-owner", "pods", verb="patch"))
    assert 'action="/pods/red/alice-0/keep"' in get(address, owner)[1]
    assert post(f"{address}/keep", owner, {"for": "2h", "uid": uid}, origin="https://evil.example") == 403
    assert post(f"{address}/keep", owner, {"for": "2h", "uid": "another"}, origin=page) == 409
    assert kept_until() is None
    assert post(f"{address}/keep", owner, {"for": "2h", "uid": uid}, origin=page) == 303
    left_s = unix_s(kept_until()) - time.time()
    assert 7_100 < left_s <= 7_200


def test_what_edl_says_of_a_pod_is_shown(plane, page, tokens):
    """The real API server knows the selector by which these events are chosen."""
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "told", "namespace": "red"},
        "eventTime": to_micro_time(time.time()),
        "reportingController": "edl.dev/operator",
        "reportingInstance": "test",
        "action": "IdleGpus",
        "reason": "IdleGpus",
        "type": "Warning",
        "note": "1 GPU of it is unused",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "alice-0", "namespace": "red"},
    }
    other = event | {"metadata": {"name": "other", "namespace": "red"}, "reportingController": "kubelet", "note": "no"}
    for body in (other, event):
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def lines():
        found = json.loads(get(f"{page}/api/decisions/decisions", tokens["red"])[1])["lines"]
        return [(one["object"], one["message"]) for one in found if one["object"].startswith("pod/")]

    wait_for("the line", lines)
    assert lines() == [("pod/alice-0", "1 GPU of it is unused")]


def test_who_is_not_known_sees_nothing(page):
    for token in ("", "x.y.z"):
        status, text = get(f"{page}/", token)
        assert status == 401
        assert "digits" not in text


def test_view_role_of_the_cluster_suffices(plane, page):
    """What the product tells administrators to give: the cluster's own role `view`, to which the chart adds jobs."""
    token = create_viewer(plane, "red", "by-role")
    plane.kubectl("create", "rolebinding", "by-role", "-n", "red", "--clusterrole=view", "--serviceaccount=red:by-role")

    def is_seen():
        token_now = plane.kubectl("create", "token", "by-role", "-n", "red").strip()  # a no is kept for minutes
        return "red-digits" in get(f"{page}/api/now", token_now)[1]

    wait_for("the job is seen", is_seen)
    assert "blue" not in get(f"{page}/api/now", token)[1]


def test_revoked_token_shows_nothing_any_more(plane, page):
    """A token ends with its account, within the time that a yes is kept."""
    token = create_viewer(plane, "red", "leaver", lists=VIEW)
    assert get(f"{page}/", token)[0] == 200
    plane.kubectl("delete", "serviceaccount", "leaver", "-n", "red")
    began_s = time.monotonic()
    wait_for("it is refused", lambda: get(f"{page}/", token)[0] == 401)
    print(f"refused after {time.monotonic() - began_s:.1f} s; a yes is kept for {YES_KEPT_S:g} s")


def test_page_may_read_and_ask_and_nothing_else(plane):
    """RBAC of its account: no secret, no write."""
    listed = plane.kubectl("get", "clusterrole", "edl-page", "-o", "json")
    verbs = {verb for rule in json.loads(listed)["rules"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch", "get", "create"}
    writes = [rule for rule in json.loads(listed)["rules"] if "create" in rule["verbs"]]
    assert {name for rule in writes for name in rule["resources"]} == {"tokenreviews", "subjectaccessreviews"}


def test_api_server_away_means_503(plane, tokens, tmp_path):
    """Last in this module: what is kept ends, and then nobody is shown anything until the server is back."""
    with open_client(plane.kubeconfig) as api:
        kubeconfig = write_account_kubeconfig(
            tmp_path / "kubeconfig", api, authority=plane.authority, namespace=NAMESPACE, account="edl-page"
        )
    with serve(kubeconfig, tmp_path) as address:
        assert get(f"{address}/", tokens["red"])[0] == 200
        plane.kill_api_server()
        try:
            wait_for("it is refused", lambda: get(f"{address}/", tokens["red"])[0] == 503)
            status, text = get(f"{address}/api/now", tokens["red"])
            assert status == 503
            assert "digits" not in text
        finally:
            plane.start_api_server()
        wait_for("it is shown again", lambda: get(f"{address}/", tokens["red"])[0] == 200)
