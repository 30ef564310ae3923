"""Making and reading: a part of the contract that every adapter of `Api` keeps."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, InvalidError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, SECRETS
from tests.unit.clusters.kubernetes.api.contract.stage import number


@pytest.mark.asyncio
class Reading:
    """See `KubeApiContract`."""

    async def test_what_is_made_can_be_read_and_names_its_kind(self, stage):
        made = await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        assert made == await stage.get(CONFIG_MAPS, "one")
        assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"a": "1"})
        assert made["metadata"]["uid"]
        assert made["metadata"]["creationTimestamp"].endswith("Z")
        assert "managedFields" not in made["metadata"]

    async def test_listing_holds_all_of_the_namespace_and_names_their_kind(self, stage):
        made = [await stage.api.create(CONFIG_MAPS, stage.config(f"c-{number}")) for number in range(3)]
        listing = await stage.api.list(CONFIG_MAPS, stage.scope)
        assert [item for item in listing.items if item["metadata"]["name"].startswith("c-")] == made
        assert int(listing.resource_version) >= number(made[-1])

    async def test_listing_over_all_namespaces_contains_it(self, stage):
        made = await stage.api.create(CONFIG_MAPS, stage.config("everywhere"))
        assert made in (await stage.api.list(CONFIG_MAPS)).items

    @pytest.mark.parametrize(
        ("labels", "names"),
        [
            ("tier=core", ["a"]),
            ("tier!=core", ["b", "c"]),
            ("tier in (core, surplus)", ["a", "b"]),
            ("tier notin (core)", ["b", "c"]),
            ("tier", ["a", "b"]),
            ("!tier", ["c"]),
            ("tier,job=x", ["a"]),
        ],
    )
    async def test_labels_select(self, stage, labels, names):
        await stage.api.create(CONFIG_MAPS, stage.config("a", labels={"tier": "core", "job": "x", "test": "1"}))
        await stage.api.create(CONFIG_MAPS, stage.config("b", labels={"tier": "surplus", "job": "y", "test": "1"}))
        await stage.api.create(CONFIG_MAPS, stage.config("c", labels={"test": "1"}))
        listing = await stage.api.list(CONFIG_MAPS, Scope(namespace=stage.namespace, labels=f"test=1,{labels}"))
        assert [item["metadata"]["name"] for item in listing.items] == names

    async def test_fields_select(self, stage):
        for name in ("a", "b"):
            await stage.api.create(CONFIG_MAPS, stage.config(name))
        listing = await stage.api.list(CONFIG_MAPS, Scope(namespace=stage.namespace, fields="metadata.name=b"))
        assert [item["metadata"]["name"] for item in listing.items] == ["b"]

    async def test_versions_rise_over_all_kinds(self, stage):
        versions = [
            number(await stage.api.create(CONFIG_MAPS, stage.config("one"))),
            number(await stage.api.create(SECRETS, stage.config("two"))),
            number(await stage.api.create(CONFIG_MAPS, stage.config("three"))),
        ]
        assert versions == sorted(set(versions))

    async def test_name_taken_is_told_apart(self, stage):
        await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        with pytest.raises(AlreadyExistsError):
            await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "2"}))
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "1"}

    async def test_what_is_not_there_is_not_found(self, stage):
        with pytest.raises(NotFoundError):
            await stage.get(CONFIG_MAPS, "none")
        with pytest.raises(NotFoundError):
            await stage.api.patch(CONFIG_MAPS, "none", {"data": {}}, namespace=stage.namespace)
        with pytest.raises(NotFoundError):
            await stage.api.delete(CONFIG_MAPS, "none", namespace=stage.namespace)

    async def test_namespace_that_is_not_there_is_not_found(self, stage):
        body = stage.config("one")
        body["metadata"]["namespace"] = "no-such-namespace"
        with pytest.raises(NotFoundError):
            await stage.api.create(CONFIG_MAPS, body)

    @pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "x" * 254])
    async def test_bad_name_names_its_field(self, stage, name):
        with pytest.raises(InvalidError) as refused:
            await stage.api.create(CONFIG_MAPS, stage.config(name))
        assert [problem.path for problem in refused.value.problems] == ["metadata.name"]

    @pytest.mark.parametrize("value", ["has space", "x" * 64, "-dash"])
    async def test_bad_label_names_its_field(self, stage, value):
        with pytest.raises(InvalidError) as refused:
            await stage.api.create(CONFIG_MAPS, stage.config("one", labels={"a": value}))
        assert {problem.path for problem in refused.value.problems} == {"metadata.labels"}
