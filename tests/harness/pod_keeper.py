"""A `PodKeeper` that remembers what it is asked, and refuses what it is told to."""

from aiohttp import web


class RecordingKeeper:
    def __init__(self, *, may_keep=True):
        self.kept = []
        self.is_allowed = may_keep

    async def may_keep(self, viewer, namespace):
        return self.is_allowed

    async def keep(self, viewer, pod, for_s):
        if not self.is_allowed:
            raise web.HTTPForbidden(text="You may not.\n")
        self.kept.append((pod.namespace, pod.name, pod.uid, for_s))
