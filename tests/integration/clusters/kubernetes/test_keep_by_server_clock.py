"""`edl keep` from a machine whose clock is wrong: a real HTTP server answers with another date."""

import http.server
import json
import threading
import time
from email.utils import formatdate

import pytest
import yaml

from autoscaler.cli.kubernetes.cluster_place import open_cluster
from autoscaler.clusters.kubernetes.objects.fields import unix_s
from autoscaler.clusters.kubernetes.objects.labels import KEEP_UNTIL

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "alice-0", "namespace": "nb", "uid": "u1"},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
}


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
def test_a_pod_is_kept_from_the_servers_now_on(tmp_path, ahead_s):
    """Else a laptop two hours behind writes a veto that is over at once, and says that the pod is kept."""
    written = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def date_time_string(self, timestamp=None):
            return formatdate((timestamp or time.time()) + ahead_s, usegmt=True)

        def do_GET(self):
            body = json.dumps(POD).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PATCH(self):
            written.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            kubeconfig = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.server_port}")
            with open_cluster(str(kubeconfig), None, "nb", is_all_namespaces=False) as place:
                began_s = time.time()
                place.keep_pod("alice-0", 3600.0)
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
