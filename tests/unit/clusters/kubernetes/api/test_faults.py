"""The faults do what their names say: else a test under them proves nothing."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, SECRETS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from tests.harness.api_faults import FaultPlan, Killed, PerturbedApi, WriteFault


def config(name):
    return {"metadata": {"name": name, "namespace": "n"}}


def stage(plan):
    server = MemoryServer(now=lambda: 1e9, namespaces=("n",))
    return server, PerturbedApi(MemoryApi(server), server, plan)


@pytest.mark.parametrize(
    ("fault", "error", "stands"),
    [
        (WriteFault.KILLED_BEFORE, Killed, False),
        (WriteFault.KILLED_AFTER, Killed, True),
        (WriteFault.REPLY_LOST, UnavailableError, True),
        (WriteFault.NOT_SENT, UnavailableError, False),
        (WriteFault.SERVER_ERROR, UnavailableError, False),
        (WriteFault.CONFLICT, ConflictError, False),
        (WriteFault.FORBIDDEN, ForbiddenError, False),
        (WriteFault.QUOTA, ForbiddenError, False),
        (WriteFault.THROTTLED, ThrottledError, False),
    ],
)
async def test_write_fails_as_planned_at_its_number_alone(fault, error, stands):
    server, api = stage(FaultPlan(writes={1: fault}))
    await api.create(CONFIG_MAPS, config("zero"))
    with pytest.raises(error) as failed:
        await api.create(CONFIG_MAPS, config("one"))
    api.revive()
    await api.create(CONFIG_MAPS, config("two"))
    names = {one["metadata"]["name"] for one in server.all(CONFIG_MAPS)}
    assert names == {"zero", "two"} | ({"one"} if stands else set())
    assert getattr(failed.value, "may_have_happened", stands) is (stands or fault is WriteFault.SERVER_ERROR)
    assert api.writes[1] == f"create configmaps one: {fault}"


async def test_who_was_killed_neither_reads_nor_writes_any_more():
    server, api = stage(FaultPlan(writes={0: WriteFault.KILLED_AFTER}))
    for _ in range(2):
        with pytest.raises(Killed):
            await api.create(CONFIG_MAPS, config("one"))
    with pytest.raises(Killed):
        await api.list(CONFIG_MAPS)
    assert api.killed.is_set()
    api.revive()
    assert [one["metadata"]["name"] for one in (await api.list(CONFIG_MAPS)).items] == ["one"]
    assert server.all(CONFIG_MAPS)


async def test_every_kind_of_write_can_fail():
    _, api = stage(FaultPlan(writes={1: WriteFault.REPLY_LOST, 2: WriteFault.REPLY_LOST, 3: WriteFault.REPLY_LOST}))
    await api.create(CONFIG_MAPS, config("one"))
    with pytest.raises(UnavailableError):
        await api.patch(CONFIG_MAPS, "one", {"data": {"a": "1"}}, namespace="n")
    with pytest.raises(UnavailableError):
        await api.apply(CONFIG_MAPS, config("one") | {"data": {"b": "1"}})
    assert (await api.get(CONFIG_MAPS, "one", namespace="n"))["data"] == {"a": "1", "b": "1"}
    with pytest.raises(UnavailableError):
        await api.delete(CONFIG_MAPS, "one", namespace="n")
    with pytest.raises(NotFoundError):
        await api.get(CONFIG_MAPS, "one", namespace="n")


async def test_listing_of_a_server_that_lags_is_how_it_stood():
    """Changes of other kinds count too, and the version is of then: a watch from it brings the rest."""
    _, api = stage(FaultPlan(lags={0: 4}))
    await api.create(CONFIG_MAPS, config("changed"))
    await api.create(CONFIG_MAPS, config("gone"))
    then = await api._inner.list(CONFIG_MAPS, Scope(namespace="n"))
    await api.patch(CONFIG_MAPS, "changed", {"data": {"a": "1"}}, namespace="n")
    await api.create(SECRETS, config("other"))
    await api.delete(CONFIG_MAPS, "gone", namespace="n")
    await api.create(CONFIG_MAPS, config("new"))
    assert await api.list(CONFIG_MAPS, Scope(namespace="n")) == then
    now = await api.list(CONFIG_MAPS, Scope(namespace="n"))
    assert {one["metadata"]["name"] for one in now.items} == {"changed", "new"}
