"""A pod is kept from the page of a cluster under the viewer's own token, and the API server decides."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from autoscaler.cluster_page.pod_keeping import OwnKeeper, TokenKeeper
from autoscaler.cluster_page.viewer_access import AccessLimits, ViewerAccess
from autoscaler.clusters.kubernetes.api.clock_skew import ServerClock
from autoscaler.clusters.kubernetes.api.errors import (
    ForbiddenError,
    NotFoundError,
    RefusedBy,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.operator.idle.consent import read_consent
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.answers.keeping import KeptPod
from tests.harness.memory_users import MemoryUsers

NOW_S = 1_780_000_000.0
OWNER = FieldOwner("test", is_apply=False)
AGREED = {"edl.dev/idle-reclaim": "30m"}


class AsUser(MemoryApi):
    """The API as one token's user: it decides about pods, as a real server does."""

    def __init__(self, server, users, token):
        super().__init__(server)
        self.users, self.token, self.is_closed = users, token, False

    async def patch(self, kind, name, change, *, namespace=None, **more):
        user = self.users.tokens.get(self.token)
        if user is None:
            raise UnauthorizedError("patch pods: Unauthorized", retry_after_s=1.0)
        if (user, "patch pods", namespace) not in self.users.rights:
            raise ForbiddenError(f"patch pods: {user} cannot patch", RefusedBy.RBAC)
        return await super().patch(kind, name, change, namespace=namespace, **more)

    async def close(self):
        self.is_closed = True


class Stage:
    """A notebook of namespace nb; `alice` may patch its pods, `bob` may not."""

    def __init__(self):
        self.server = MemoryServer(now=lambda: NOW_S, namespaces=("nb",))
        self.users = MemoryUsers(self.server)
        self.users.tokens |= {"of-alice": "alice", "of-bob": "bob"}
        self.users.give("alice", "patch pods", "nb")
        body = {
            "metadata": {"name": "alice-0", "namespace": "nb", "annotations": AGREED},
            "spec": {"containers": [{"name": "main"}]},
        }
        self.uid = self.server.create(PODS, body, OWNER)["metadata"]["uid"]
        self.opened = []

    @asynccontextmanager
    async def keeper(self, server_now_s=lambda: NOW_S):
        limits = AccessLimits(pause_after_failure_s=0.01)
        clock = asyncio.get_running_loop().time
        async with ViewerAccess(MemoryApi(self.server), clock=clock, limits=limits) as viewers:
            yield TokenKeeper(viewers, self.connect_as, server_now_s=server_now_s)

    async def connect_as(self, token):
        self.opened.append(AsUser(self.server, self.users, token))
        return self.opened[-1]

    async def keep(self, keeper, who="alice", *, uid="", for_s=7200.0):
        pod = KeptPod(namespace="nb", name="alice-0", uid=uid or self.uid)
        await keeper.keep(Viewer(name=who, credential=f"of-{who}"), pod, for_s)

    @property
    def consent(self):
        return read_consent(self.server.get(PODS, "nb", "alice-0"), None, None)


@pytest.fixture
def stage():
    return Stage()


async def test_what_the_page_writes_keeps_the_pod_until_then_and_no_longer(stage):
    """The operator reads the pod at the API server before each deed, so that it holds as soon as it is written."""
    long_idle = {"idle_since_unix_s": NOW_S - 86_400}
    async with stage.keeper() as keeper:
        assert stage.consent.holds_at(NOW_S, **long_idle)
        await stage.keep(keeper)
        assert not stage.consent.holds_at(NOW_S, **long_idle)
        assert not stage.consent.holds_at(NOW_S + 7199, **long_idle)
        assert stage.consent.holds_at(NOW_S + 7200, **long_idle)
        await stage.keep(keeper, for_s=0.0)
        assert stage.consent.holds_at(NOW_S, **long_idle)
    assert [one.token for one in stage.opened] == ["of-alice"] * 2
    assert all(one.is_closed for one in stage.opened)


@pytest.mark.parametrize("off_s", [-90_000.0, 90_000.0])
async def test_a_node_whose_clock_is_off_or_set_keeps_the_pod_for_as_long_as_asked(stage, off_s):
    """Instants on pods are by the API server's clock: by the node's a keep would be over at once, or last for a day."""
    here = {"unix": NOW_S + off_s}
    clock = ServerClock(lambda: here["unix"], steady_clock=lambda: 0.0)
    clock.set_ahead(-off_s)
    here["unix"] = NOW_S - off_s  # set in between
    async with stage.keeper(clock.now_s) as keeper:
        await stage.keep(keeper, for_s=7200.0)
    assert stage.consent.kept_until_unix_s == NOW_S + 7200


async def test_the_form_is_offered_to_those_who_may(stage):
    async with stage.keeper() as keeper:
        for who, wanted in (("alice", True), ("bob", False), ("nobody", False)):
            assert await keeper.may_keep(Viewer(name=who, credential=f"of-{who}"), "nb") is wanted
        assert not await keeper.may_keep(Viewer(name="alice", credential="of-alice"), "other")
        stage.users.problem = UnavailableError("create tokenreviews: refused", may_have_happened=False)
        assert not await keeper.may_keep(Viewer(name="carol", credential="of-carol"), "nb")


async def test_who_may_not_changes_nothing(stage):
    """Whatever was offered: a form can be sent by hand."""
    async with stage.keeper() as keeper:
        with pytest.raises(web.HTTPForbidden):
            await stage.keep(keeper, "bob")
        with pytest.raises(web.HTTPUnauthorized):
            await stage.keep(keeper, "nobody")
        with pytest.raises(web.HTTPConflict):
            await stage.keep(keeper, uid="of-another-pod")
    assert stage.consent.kept_until_unix_s < 0
    assert all(one.is_closed for one in stage.opened)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (UnavailableError("patch pods: connection refused", may_have_happened=True), web.HTTPServiceUnavailable),
        (NotFoundError("patch pods: not found"), web.HTTPNotFound),
    ],
)
async def test_what_is_not_known_is_said(stage, error, answer):
    class Away(MemoryApi):
        async def patch(self, *_, **__):
            raise error

    with pytest.raises(answer):
        await stage.keep(OwnKeeper(Away(stage.server), server_now_s=lambda: NOW_S))


async def test_with_ones_own_credentials_there_is_no_other_connection(stage):
    await stage.keep(OwnKeeper(MemoryApi(stage.server), server_now_s=lambda: NOW_S))
    assert stage.consent.kept_until_unix_s == NOW_S + 7200
    assert stage.opened == []
