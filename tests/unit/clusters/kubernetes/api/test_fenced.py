"""Who does not lead writes nothing: no write passes, every read does."""

import pytest

from autoscaler.clusters.kubernetes.api.decorators import FencedApi
from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer

BODY = {"metadata": {"name": "new", "namespace": "n"}}
WRITES = {
    "create": lambda api: api.create(CONFIG_MAPS, BODY),
    "apply": lambda api: api.apply(CONFIG_MAPS, BODY),
    "patch": lambda api: api.patch(CONFIG_MAPS, "one", {"data": {"a": "1"}}, namespace="n"),
    "delete": lambda api: api.delete(CONFIG_MAPS, "one", namespace="n"),
}


class Reign:
    leads = True


@pytest.fixture
async def stage():
    server, reign = MemoryServer(now=lambda: 1e9, namespaces=("n",)), Reign()
    await MemoryApi(server).create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": "n"}})
    return server, reign, FencedApi(MemoryApi(server), lambda: reign.leads)


@pytest.mark.parametrize("name", WRITES)
async def test_leader_writes_and_a_deposed_one_does_not(stage, name):
    """The right is asked for at every write, not kept."""
    server, reign, api = stage
    reign.leads = False
    before = server.history.version
    with pytest.raises(NotLeadingError):
        await WRITES[name](api)
    assert server.history.version == before
    reign.leads = True
    await WRITES[name](api)
    assert server.history.version > before


async def test_reads_pass_without_the_right(stage):
    _, reign, api = stage
    reign.leads = False
    listing = await api.list(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in listing.items] == ["one"]
    assert (await api.get(CONFIG_MAPS, "one", namespace="n"))["kind"] == "ConfigMap"
    before = str(int(listing.resource_version) - 1)
    event = await anext(api.watch(CONFIG_MAPS, since=before, timeout_s=5.0, silence_s=5.0))
    assert event.object["metadata"]["name"] == "one"
