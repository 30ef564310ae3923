"""The one form that changes something: from the pod's page, for a pod that the viewer sees, and no other site's."""

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.page.answers import keeping
from autoscaler.page.page_server import serve_locally
from tests.harness.page_cluster import NOW_S, FixedSource, demo_documents, line, pod
from tests.harness.pod_keeper import RecordingKeeper

NOTEBOOK = "/pods/nb/alice-0"
FORM = {"for": "2h", "uid": "uid-of-alice-0"}


def documents_of(**annotations):
    notebook = pod("alice-0", on="node-1", namespace="nb", gpus=1, annotations=annotations)
    documents = demo_documents()
    return replace(documents, pods=(*documents.pods, notebook))


class Scene:
    """A page over a notebook with a GPU, and a client that knows its token."""

    def __init__(self, address, keeper, client):
        self.base, self.keeper, self.client = address.partition("/?")[0], keeper, client

    async def post(self, path=NOTEBOOK, form=FORM, **headers):
        headers = {"Origin": self.base} | headers
        given = {name: value for name, value in headers.items() if value is not None}
        async with self.client.post(
            f"{self.base}{path}/keep", data=form, headers=given, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers.get("Location", ""), await answer.text()

    async def get(self, path=NOTEBOOK):
        async with self.client.get(self.base + path) as answer:
            return answer, await answer.text()


@pytest.fixture
def keeper():
    return RecordingKeeper()


@pytest.fixture
def lines():
    return [line("pod/alice-0", "IdleGpus", "given back at noon", namespace="nb"), line("tj/alice-0", "Started")]


@pytest.fixture
async def scene(keeper, lines):
    async with (
        serve_locally(FixedSource(documents_of(), lines), keeper=keeper) as address,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {address.partition('=')[2]}"}) as client,
    ):
        yield Scene(address, keeper, client)


async def test_the_pod_s_page_tells_what_it_was_told_and_offers_to_keep_it(scene):
    answer, text = await scene.get()
    assert answer.status == 200
    assert "given back at noon" in text
    assert "Started" not in text  # a job of the same name is another
    assert 'action="/pods/nb/alice-0/keep"' in text
    assert answer.headers["Referrer-Policy"] == "same-origin"


async def test_a_pod_is_kept_and_its_page_shown_again(scene, keeper):
    assert (await scene.post())[:2] == (303, NOTEBOOK)
    assert (await scene.post(form=FORM | {"for": "0s"}))[0] == 303
    kept = ("nb", "alice-0", "uid-of-alice-0")
    assert keeper.kept == [(*kept, 7200.0), (*kept, 0.0)]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": None},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_of_another_site_keeps_nothing(scene, keeper, headers):
    """Also with the right credentials, as a browser sends them along; a form is a navigation like a link."""
    origin = {} if "Origin" in headers else {"Origin": "https://evil.example"}
    assert (await scene.post(**origin, **headers))[0] == 403
    assert keeper.kept == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
async def test_a_form_that_another_site_caused_keeps_nothing_whatever_its_origin(scene, keeper, site):
    """A navigation like a link's, which other pages may be reached by; the page's own form is taken."""
    navigation = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await scene.post(**navigation, **{"Sec-Fetch-Site": site}))[0] == 403
    assert keeper.kept == []
    assert (await scene.post(**navigation, **{"Sec-Fetch-Site": "same-origin"}))[0] == 303


async def test_without_the_token_nothing_is_kept(scene, keeper, stranger):
    async with stranger.post(f"{scene.base}{NOTEBOOK}/keep", data=FORM, headers={"Origin": scene.base}) as answer:
        assert answer.status == 401
    assert keeper.kept == []


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        (NOTEBOOK, FORM | {"for": "9000h"}, 400),
        (NOTEBOOK, {"uid": "u"}, 400),
        (NOTEBOOK, {"for": "2h"}, 400),
        (NOTEBOOK, FORM | {"more": "x" * 5_000}, 413),
        ("/pods/nb/nobody", FORM, 404),
        ("/pods/team/digits-a-trainer-0", FORM, 404),  # EDL's own
        ("/pods/team/web-abc-0", FORM, 404),  # holds no GPU
    ],
)
async def test_what_cannot_be_kept_is_refused(scene, keeper, path, form, status):
    assert (await scene.post(path, form))[0] == status
    assert keeper.kept == []


async def test_a_viewer_who_may_not_gets_the_command_for_somebody_who_may(scene, keeper):
    keeper.is_allowed = False
    _, text = await scene.get()
    assert "<form" not in text
    assert "edl keep alice-0 -n nb --for 2h" in text
    assert (await scene.post())[0] == 403


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_no_other_method_keeps_it(scene, keeper, method):
    """A link, an image or a prefetch would do it otherwise."""
    async with scene.client.request(method, f"{scene.base}{NOTEBOOK}/keep", data=FORM) as answer:
        assert answer.status == 405
    assert keeper.kept == []


async def test_a_page_without_a_keeper_changes_nothing(lines):
    async with (
        serve_locally(FixedSource(documents_of(), lines)) as address,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {address.partition('=')[2]}"}) as client,
    ):
        scene = Scene(address, None, client)
        assert "<form" not in (await scene.get())[1]
        assert (await scene.post())[0] == 403


@pytest.mark.parametrize(
    ("until", "told"),
    [
        (to_time(NOW_S + 600), f'until <time datetime="{to_time(NOW_S + 600)}">'),
        (to_time(NOW_S - 600), "<dd>no</dd>"),
        (f" {to_time(NOW_S + 600)} ", f'until <time datetime="{to_time(NOW_S + 600)}">'),
        (to_time(NOW_S - 600) + 30 * " ", "is no time; the pod is kept"),
        ("9999-12-31T23:59:59-10:00", 'until <time datetime="9999-12-31T23:59:59Z">'),
        ("<tomorrow>", "&lt;tomorrow&gt;"),
    ],
)  # fmt: skip
async def test_until_when_it_is_kept_stands_there(until, told):
    source = FixedSource(documents_of(**{"edl.dev/keep-until": until}))
    async with (
        serve_locally(source) as address,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {address.partition('=')[2]}"}) as client,
    ):
        assert told in (await Scene(address, None, client).get())[1]


async def test_a_form_that_does_not_come_is_cut(scene, keeper, monkeypatch):
    """Not kept open, with its place among its viewer's, for as long as the client likes."""
    monkeypatch.setattr(keeping, "FORM_LIMIT_S", 0.05)

    async def half():
        yield b"for=2h&uid="
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        status, _, _ = await scene.post(form=half(), **{"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 408
    assert keeper.kept == []
