"""Fills etcd with a job's password as fast as it goes: `python -m tests.integration.etcd_flood`.

Reads `{"endpoint", "ca", "user", "password", "how"}` from stdin and ends when etcd turns it away for good.  Writes one
line when it begins.  Nothing of EDL's own store is used: only etcd's API.
"""

import json
import os
import sys
import time

import grpc

from master.store.etcd.etcd_config import grpc_target
from master.store.etcd.stubs import rpc, stubs

VALUE = os.urandom(1024 * 1024)


def requests(prefix, how):
    """Endless: one key again and again, a new key each time, or keys that are deleted at once."""
    number = 0
    while True:
        number += 1
        key = prefix + (b"%d" % number if how == "keys" else b"head")
        yield "Put", rpc.PutRequest(key=key, value=VALUE)
        if how == "deleted":
            yield "DeleteRange", rpc.DeleteRangeRequest(key=key)


def main():
    told = json.load(sys.stdin)
    trust = grpc.ssl_channel_credentials(root_certificates=told["ca"].encode())
    channel = grpc.secure_channel(grpc_target(told["endpoint"]), trust)
    ask = stubs.AuthStub(channel).Authenticate
    token = ask(rpc.AuthenticateRequest(name=told["user"], password=told["password"])).token
    print("begins", flush=True)
    for method, request in requests(f"/edl/v1/jobs/{told['user']}/".encode(), told["how"]):
        while True:
            try:
                getattr(stubs.KVStub(channel), method)(request, timeout=5, metadata=[("token", token)])
                break
            except grpc.RpcError as error:
                if error.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}:
                    return
                time.sleep(0.01)


if __name__ == "__main__":
    main()
