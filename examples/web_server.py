"""A small web service for the local cluster: answers on $PORT, finishes what it serves when told to leave.

It stands for whatever is more important than training.  Each request costs a few milliseconds of work, so that a wave
of replicas is a wave of load.
"""

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page(BaseHTTPRequestHandler):
    """Says who answers."""

    def do_GET(self) -> None:
        body = f"{os.environ.get('EDL_NAME', 'web')} answers {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def main() -> int:
    """Serve until SIGTERM."""
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Page)
    # shutdown() waits for the serving loop, so it must not be called from within it
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.05)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
