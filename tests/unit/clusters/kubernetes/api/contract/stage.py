"""The stage of the contract: an API server with an empty namespace, and two doors to it."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from autoscaler.clusters.kubernetes.api.api_port import EventType, Scope
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS

GATE = {"name": "edl.dev/gang"}


@dataclass
class Stage:
    api: Any
    other: Any
    namespace: str
    shortest_s: float
    collect: Any
    forgotten: Any
    user: Any

    @property
    def scope(self):
        return Scope(namespace=self.namespace)

    def config(self, name, *, data=None, **metadata):
        return {"metadata": {"name": name, "namespace": self.namespace, **metadata}, "data": data or {}}

    def pod(self, name, *, gates=(), finalizers=(), **spec):
        container = {"name": "main", "image": "registry.invalid/none:1", "resources": {"requests": {"cpu": "100m"}}}
        metadata = {"name": name, "namespace": self.namespace, "labels": {"app": "x"}, "finalizers": list(finalizers)}
        return {"metadata": metadata, "spec": {"containers": [container], "schedulingGates": list(gates), **spec}}

    def deployment(self, name, *, replicas=0):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": self.pod("x")["spec"]}
        template["spec"].pop("schedulingGates")
        return {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }

    async def get(self, kind, name):
        return await self.api.get(kind, name, namespace=self.namespace)

    async def version(self, kind=CONFIG_MAPS):
        return (await self.api.list(kind, self.scope)).resource_version

    async def watched(self, *, since, count, kind=CONFIG_MAPS, scope=None):
        """The first `count` events, bookmarks left out."""
        found = []
        async with aclosing(
            self.api.watch(kind, scope or self.scope, since=since, timeout_s=120, silence_s=120)
        ) as events:
            async for event in events:
                if event.type is not EventType.BOOKMARK:
                    found.append(event)
                if len(found) == count:
                    break
        return [(event.type.name, event.object["metadata"]["name"]) for event in found], found


def number(obj):
    return int(obj["metadata"]["resourceVersion"])
