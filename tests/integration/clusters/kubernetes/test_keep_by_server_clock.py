"""A pod is kept from a machine whose clock is wrong: a real HTTP server answers with another date."""

import asyncio
import http.server
import json
import threading
import time
from email.utils import formatdate

import pytest
import yaml

from autoscaler.cli.kubernetes.cluster_place import open_cluster
from autoscaler.cli.kubernetes.kubeconfig import find_cluster
from autoscaler.cli.kubernetes.served_page import own_connection
from autoscaler.clusters.kubernetes.objects.fields import unix_s
from autoscaler.clusters.kubernetes.objects.labels import KEEP_UNTIL
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.answers.keeping import KeptPod

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "alice-0", "namespace": "nb", "uid": "u1"},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
}


def keep_by_command(kubeconfig):
    """`edl keep pod/alice-0 --for 1h`"""
    with open_cluster(str(kubeconfig), None, "nb", is_all_namespaces=False) as place:
        place.keep_pod("alice-0", 3600.0)


def keep_by_page(kubeconfig):
    """The form on the page of `edl page`, which has asked before whether to offer it."""

    async def keep():
        async with own_connection(find_cluster(str(kubeconfig), None, "nb")) as (_, keeper):
            assert await keeper.may_keep(Viewer(name=""), "nb")
            await keeper.keep(Viewer(name=""), KeptPod(namespace="nb", name="alice-0", uid="u1"), 3600.0)

    asyncio.run(keep())


@pytest.mark.parametrize("keep", [keep_by_command, keep_by_page])
@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
def test_a_pod_is_kept_from_the_servers_now_on(tmp_path, ahead_s, keep):
    """Else a laptop two hours behind writes a veto that is over at once, and says that the pod is kept."""
    written = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def date_time_string(self, timestamp=None):
            return formatdate((timestamp or time.time()) + ahead_s, usegmt=True)

        def do_GET(self):
            self.answer(POD)

        def answer(self, what):
            body = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PATCH(self):
            written.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(POD)

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(asked | {"status": {"allowed": True}})

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            kubeconfig = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.server_port}")
            began_s = time.time()
            keep(kubeconfig)
            ended_s = time.time()
        finally:
            server.shutdown()
            thread.join()
    (change,) = written
    until_s = unix_s(change["metadata"]["annotations"][KEEP_UNTIL])
    resolution_s = 2.0  # of the date, and of the annotation
    assert began_s - resolution_s <= until_s - 3600.0 - ahead_s <= ended_s + resolution_s


def write_kubeconfig(path, server):
    path.write_text(
        yaml.safe_dump(
            {
                "kind": "Config",
                "apiVersion": "v1",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path
