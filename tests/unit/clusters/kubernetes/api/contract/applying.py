"""Server-side apply: a part of the contract that every adapter of `Api` keeps."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.errors import ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, PODS
from tests.unit.clusters.kubernetes.api.contract.stage import GATE, number


@pytest.mark.asyncio
class Applying:
    """See `KubeApiContract`."""

    async def test_apply_makes_changes_and_takes_back_its_own(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1", "b": "1"}))
        applied = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"b": "2"}))
        assert applied["data"] == {"b": "2"}

    async def test_apply_leaves_what_others_set(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        await stage.other.patch(CONFIG_MAPS, "one", {"data": {"theirs": "1"}}, namespace=stage.namespace)
        applied = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}))
        assert applied["data"] == {"a": "2", "theirs": "1"}

    async def test_apply_again_keeps_the_version(self, stage):
        first = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        again = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        assert number(again) == number(first)

    async def test_field_of_another_manager_is_a_conflict_unless_forced(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        await stage.other.patch(CONFIG_MAPS, "one", {"data": {"a": "theirs"}}, namespace=stage.namespace)
        with pytest.raises(ConflictError):
            await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}), is_forced=False)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "theirs"}
        forced = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}))
        assert forced["data"] == {"a": "2"}

    async def test_field_applied_alike_by_two_is_shared(self, stage):
        """It stays until both have left it, and whoever left has no say in it."""
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1", "b": "1"}))
        await stage.other.apply(CONFIG_MAPS, stage.config("one", data={"a": "1", "b": "1"}), is_forced=False)
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"b": "1"}))
        await stage.other.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}), is_forced=False)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "2", "b": "1"}

    async def test_apply_by_uid_makes_nothing(self, stage):
        """A status written late does not bring a deleted object back."""
        body = stage.config("gone", uid="00000000-0000-4000-8000-ffffffffffff")
        with pytest.raises(ConflictError):
            await stage.api.apply(CONFIG_MAPS, body)
        with pytest.raises(NotFoundError):
            await stage.get(CONFIG_MAPS, "gone")

    async def test_apply_to_another_object_of_that_name_is_a_conflict(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        body = stage.config("one", data={"a": "2"}, uid="00000000-0000-4000-8000-ffffffffffff")
        with pytest.raises(ConflictError):
            await stage.api.apply(CONFIG_MAPS, body)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "1"}

    async def test_apply_of_status_keeps_the_conditions_of_others(self, stage):
        """Conditions are a map by their type."""
        await stage.api.create(PODS, stage.pod("one", gates=[GATE]))
        condition = {"type": "edl.dev/Drained", "status": "False"}
        body = {"metadata": {"name": "one", "namespace": stage.namespace}, "status": {"conditions": [condition]}}
        applied = await stage.api.apply(PODS, body, subresource=Subresource.STATUS)
        assert {one["type"] for one in applied["status"]["conditions"]} >= {"edl.dev/Drained", "PodScheduled"}
        body["status"]["conditions"] = [condition | {"status": "True"}]
        applied = await stage.api.apply(PODS, body, subresource=Subresource.STATUS)
        held = {one["type"]: one["status"] for one in applied["status"]["conditions"]}
        assert (held["edl.dev/Drained"], held["PodScheduled"]) == ("True", "False")
