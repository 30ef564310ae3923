"""The client on a real API server keeps the contract that the server in memory keeps."""

import asyncio
import json
from contextlib import suppress

import pytest_asyncio

from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, PODS, Kind
from tests.cluster.viewers import create_viewer
from tests.harness.waiting import BUDGET_S
from tests.unit.clusters.kubernetes.api.contract import KubeApiContract, Stage

THINGS = Kind(group="test.edl.dev", plural="things", kind="Thing")


@pytest_asyncio.fixture
async def stage(control_plane, namespace):
    api = await connect(control_plane.kubeconfig)
    other = await connect(control_plane.kubeconfig, field_manager="somebody")

    async def collected(probe):
        async with asyncio.timeout(BUDGET_S):
            while not await probe():  # noqa: ASYNC110 - another process does it and tells nobody
                await asyncio.sleep(0.1)

    async def forgotten():
        """A kind that has come later than that version: its watches know nothing from before."""
        await api.create(CUSTOM_RESOURCE_DEFINITIONS, definition_of(THINGS))

        async def is_served():
            try:
                return (await api.list(THINGS)).resource_version
            except NotFoundError:
                return None

        await collected(is_served)
        return THINGS, "1"

    async def user(name, lists=None):
        return create_viewer(control_plane, namespace, name, lists=() if lists is None else (lists.plural,))

    yield Stage(
        api=api,
        other=other,
        namespace=namespace,
        shortest_s=1.0,
        collect=collected,
        forgotten=forgotten,
        user=user,
    )
    with suppress(NotFoundError):
        await api.delete(CUSTOM_RESOURCE_DEFINITIONS, definition_of(THINGS)["metadata"]["name"])
    await api.close()
    await other.close()


def definition_of(kind):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "kind": kind.kind},
            "versions": [{"name": kind.version, "served": True, "storage": True, "schema": schema}],
        },
    }


class TestRealApi(KubeApiContract):
    pass


def pod_of(name, **more):
    container = {"name": "main", "image": "edl/trainer", **more}
    return {"metadata": {"name": name}, "spec": {"nodeSelector": {"no": "such"}, "containers": [container]}}


async def test_pods_are_listed_whatever_one_author_wrote_into_them(control_plane, core, stage):
    """Managed fields of 2,000 levels, and text that is six times as long on the wire, hid everybody's pods (A11)."""
    deep = pod_of("deep")
    deep |= {"apiVersion": "v1", "kind": "Pod"}
    deep["metadata"]["managedFields"] = [
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "here"}
    ]
    text = json.dumps(deep).replace('"here"', '{"f:a":' * 2_000 + "{}" + "}" * 2_000)
    place = ("-n", stage.namespace)
    try:
        control_plane.kubectl("create", "--validate=false", *place, "-f", "-", stdin=text)
        for body in (pod_of("long", args=["<" * 1_480_000]), pod_of("plain")):
            core.create_namespaced_pod(stage.namespace, body)
        found = await stage.api.list(PODS, Scope(namespace=stage.namespace))
    finally:  # the library of the other tests reads none of that depth
        control_plane.kubectl("delete", "pods", "--all", *place, "--force", "--grace-period=0", "--wait=false")
    assert {pod["metadata"]["name"] for pod in found.items} == {"deep", "long", "plain"}
