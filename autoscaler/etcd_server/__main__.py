"""`python -m autoscaler.etcd_server --ensure [--demo]`: find or build an etcd server, and print its path.

With `--serve FOLDER` instead, one member serves until SIGTERM (`serve`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from autoscaler.etcd_server.errors import EtcdServerError
from autoscaler.etcd_server.finder import find_etcd
from autoscaler.etcd_server.serve import serve_member


def report(line: str) -> None:
    print(f"etcd: {line}", file=sys.stderr, flush=True)  # noqa: T201  # progress for whoever waits at the terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m autoscaler.etcd_server", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--ensure", action="store_true", help="find an etcd server, or build one")
    what.add_argument("--serve", type=Path, metavar="FOLDER", help="run one member on data in FOLDER until SIGTERM")
    parser.add_argument("--sockets", type=Path, metavar="FOLDER", help="where it listens: a folder of mode 0700")
    parser.add_argument("--demo", action="store_true", help="accept etcd 3.5.1 from its wheel if building fails")
    arguments = parser.parse_args()
    try:
        if arguments.serve is not None:
            sockets, is_demo = arguments.sockets, arguments.demo
            asyncio.run(serve_member(arguments.serve, sockets=sockets, allow_demo_version=is_demo, report=report))
            return 0
        binary = find_etcd(allow_demo_version=arguments.demo, environ=os.environ, report=report)
    except EtcdServerError as error:
        report(str(error))
        return 1
    report(str(binary))
    print(binary.path)  # noqa: T201  # the answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
