"""The page in a real browser: what a stranger sees, hears and can do, without a sleep or a request elsewhere."""

from dataclasses import replace

import pytest

from autoscaler.page import live_stream, sampler
from autoscaler.views.documents import ClusterDocuments
from tests.browser.accessibility import problems_of
from tests.harness.page_cluster import (
    NOW_S,
    FixedSource,
    condition,
    demo_documents,
    demo_lines,
    job,
    line,
    node,
    pod,
)
from tests.harness.pod_keeper import RecordingKeeper

pytestmark = pytest.mark.browser
SILENT_MS = 26_000
PATHS = ("/", "/jobs/team/digits-a", "/waiting", "/decisions", "/time", "/what-if")


def expect(found):
    from playwright.sync_api import expect as waits_for  # noqa: PLC0415 - where the tests are not left out

    return waits_for(found)


def test_a_stranger_sees_who_has_the_cluster_and_why_a_job_is_small(served, open_page):
    """The shares in words and numbers, each job's size and reason, each node's pods."""
    page = open_page(served.address)
    who = page.get_by_role("region", name="Who has the cluster")
    expect(who.get_by_role("row").filter(has_text="web")).to_contain_text("5 cores")
    jobs = page.get_by_role("region", name="Jobs")
    expect(jobs.get_by_role("row").filter(has_text="digits-a")).to_contain_text("no node has free capacity")
    expect(page.get_by_role("group", name="node-1: 3.5/4 cores in use")).to_be_visible()


def test_a_change_is_shown_without_a_reload_and_keeps_the_focus(served, open_page):
    page = open_page(served.address)
    link = page.get_by_role("region", name="Jobs").get_by_role("link", name="digits-b", exact=True)
    link.focus()
    page.evaluate("window.isStill = true")
    documents = demo_documents()
    served.change(replace(documents, jobs=(*documents.jobs, job("digits-new", age_s=1))))
    expect(page.get_by_role("region", name="Jobs").get_by_role("link", name="digits-new", exact=True)).to_be_visible()
    assert page.evaluate("window.isStill")
    expect(link).to_be_focused()


def test_rows_of_names_that_look_alike_stay_when_something_changes(served, open_page):
    """`team`'s `a-x` and `team-a`'s `x`: no tenant takes another one's job off the open page by a name of theirs."""
    alike = (job("a-x", namespace="team"), job("x", namespace="team-a"))
    pods = tuple(
        pod(f"{name}-trainer-0", on="node-1", job=name, namespace=namespace)
        for namespace, name in (("team", "a-x"), ("team-a", "x"))
    )
    documents = replace(demo_documents(), jobs=alike, pods=pods)
    served.change(documents)
    page = open_page(served.address)
    rows = page.get_by_role("region", name="Jobs").get_by_role("row")
    blocks = page.get_by_role("link", name="trainer-0: trainer, core")
    expect(rows).to_have_count(3)  # one of them the head
    expect(blocks).to_have_count(2)
    served.change(replace(documents, jobs=(*alike, job("later", namespace="zoo"))))
    expect(page.get_by_role("region", name="Jobs").get_by_role("link", name="later", exact=True)).to_be_visible()
    expect(rows).to_have_count(4)
    expect(blocks).to_have_count(2)
    doubled = """() => {
      const before = live.querySelectorAll("tr").length;
      for (const row of live.querySelectorAll("tr")) row.id = "one";
      show(live.innerHTML);
      return [before, live.querySelectorAll("tr").length];
    }"""
    before, after = page.evaluate(doubled)  # of whatever has one id twice nothing is lost either
    assert before == after


def test_by_keyboard_a_pod_tells_what_it_is_and_leads_to_its_job(served, open_page):
    page = open_page(served.address)
    block = page.get_by_role("link", name="digits-b-trainer-0: trainer, core")
    block.focus()
    expect(page.locator("#told")).to_contain_text("digits-b-trainer-0: trainer, core, Running")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="digits-b")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Now")).to_be_visible()


def test_the_skip_link_is_first(served, open_page):
    page = open_page(served.address)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()


def test_the_token_leaves_the_address(served, open_page):
    page = open_page(served.address)
    assert page.url == served.base + "/"


def test_without_script_everything_is_there(served, open_page):
    page = open_page(served.address, java_script_enabled=False)
    expect(page.get_by_role("region", name="Jobs").get_by_role("link", name="digits-b", exact=True)).to_be_visible()
    expect(page.get_by_text("Without script this page does not renew itself")).to_be_visible()
    page.get_by_role("link", name="Decisions").click()
    page.get_by_label("Words").fill("digits-b shrunk")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("1 of 4 lines match")).to_be_visible()


def test_another_server_goes_on_where_the_first_one_ended(serve, open_page):
    """A leader that is replaced costs a notice while nobody answers, and no reload."""
    first = serve(FixedSource(demo_documents(), demo_lines()))
    page = open_page(first.address, is_cut=True)
    jobs = page.get_by_role("region", name="Jobs")
    expect(jobs.get_by_role("link", name="digits-b", exact=True)).to_be_visible()
    page.evaluate("window.isStill = true")
    port, token = int(first.base.rpartition(":")[2]), first.address.partition("=")[2]
    first.end()
    expect(page.get_by_role("status")).to_contain_text("Not connected: this is the last that is known")
    expect(jobs.get_by_role("link", name="digits-b", exact=True)).to_be_visible()
    serve(FixedSource(replace(demo_documents(), jobs=(job("digits-later"),))), port=port, token=token)
    expect(jobs.get_by_role("link", name="digits-later", exact=True)).to_be_visible()
    expect(page.get_by_role("status")).to_be_hidden()
    assert page.evaluate("window.isStill")


def test_a_pod_is_kept_from_the_page_that_a_notice_links_to(serve, open_page):
    """By keyboard; the browser names the page as the form's origin, and nothing else is asked for."""
    keeper = RecordingKeeper()
    documents = demo_documents()
    notebook = pod("alice-0", on="node-1", namespace="nb", gpus=1)
    lines = [line("pod/alice-0", "IdleGpus", "given back at noon", namespace="nb")]
    source = FixedSource(replace(documents, pods=(*documents.pods, notebook)), lines)
    notebooks = serve(source, keeper=keeper)
    page = open_page(notebooks.base + f"/pods/nb/alice-0?token={notebooks.address.partition('=')[2]}")
    expect(page.get_by_role("region", name="What EDL said of it")).to_contain_text("given back at noon")
    button = page.get_by_role("button", name="Keep for 8 hours")
    button.focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="alice-0")).to_be_visible()
    assert keeper.kept == [("nb", "alice-0", "uid-of-alice-0", 28_800.0)]


def test_two_tabs_are_renewed_both(served, open_page):
    first = open_page(served.address)
    second = first.context.new_page()
    second.goto(served.base + "/waiting")
    expect(second.get_by_text("None: every job has its minimum.")).to_be_visible()
    waits = job("late", ready=0, target=0, message="there is no room")
    served.change(replace(demo_documents(), jobs=(waits,)))
    expect(first.get_by_role("region", name="Jobs").get_by_role("link", name="late", exact=True)).to_be_visible()
    expect(second.get_by_role("region", name="cannot start").get_by_role("row").filter(has_text="late")).to_be_visible()


def jobs_link(page, name):
    return page.get_by_role("region", name="Jobs").get_by_role("link", name=name, exact=True)


def with_job(name):
    documents = demo_documents()
    return replace(documents, jobs=(*documents.jobs, job(name)))


def test_behind_a_proxy_that_holds_streams_back_the_page_is_renewed(served, open_page, put_between):
    """Its script asks for the page where it has heard nothing for a while."""
    page = open_page(put_between(served, passes=0, is_cut=False), has_clock=True)
    expect(jobs_link(page, "digits-b")).to_be_visible()
    page.evaluate("window.isStill = true")
    served.change(with_job("digits-held"))
    page.clock.fast_forward(SILENT_MS)
    expect(jobs_link(page, "digits-held")).to_be_visible()
    assert page.evaluate("window.isStill")


def test_a_stream_that_is_cut_within_a_part_goes_on(served, open_page, put_between):
    """The half of a part is not shown, and the next stream has all of it."""
    page = open_page(put_between(served, passes=2_000, is_cut=True), is_cut=True)
    served.change(with_job("digits-after"))
    expect(jobs_link(page, "digits-after")).to_be_visible()
    expect(page.get_by_role("status")).to_be_hidden()


LINES = {"slow": (400, 16 * 1024), "far away": (1_500, 128 * 1024)}  # milliseconds, bytes a second


@pytest.mark.parametrize("line", LINES)
def test_on_a_poor_line_that_is_cut_and_comes_back_the_page_stays_usable(served, open_page, line):
    """It is renewed, says while it is cut that it shows the last that is known, and follows again without a reload."""
    page = open_page(served.address, is_cut=True)
    latency_ms, bytes_per_s = LINES[line]
    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")

    def put_on_line(*, is_cut):
        conditions = {"latency": latency_ms, "downloadThroughput": bytes_per_s, "uploadThroughput": bytes_per_s}
        devtools.send("Network.emulateNetworkConditions", {"offline": is_cut, **conditions})

    def tell(name):
        page.locator("h1").click()
        page.get_by_role("link", name=f"{name}: trainer, core").focus()
        expect(page.locator("#told")).to_contain_text(f"{name}: trainer, core, Running")

    put_on_line(is_cut=False)
    page.reload()
    expect(jobs_link(page, "digits-b")).to_be_visible()
    page.evaluate("window.isStill = true")
    served.change(with_job("digits-slow"))
    expect(jobs_link(page, "digits-slow")).to_be_visible()
    tell("digits-b-trainer-0")
    put_on_line(is_cut=True)
    expect(page.get_by_role("status")).to_contain_text("Not connected: this is the last that is known")
    expect(jobs_link(page, "digits-slow")).to_be_visible()
    tell("digits-a-trainer-0")
    served.change(with_job("digits-missed"))
    put_on_line(is_cut=False)
    expect(jobs_link(page, "digits-missed")).to_be_visible()
    expect(page.get_by_role("status")).to_be_hidden()
    assert page.evaluate("window.isStill")


HIDE = """
Object.defineProperty(document, 'hidden', {configurable: true, value: true});
document.dispatchEvent(new Event('visibilitychange'))
"""
LEFT = {
    "back button": ("pagehide", "pageshow"),
    "other tab": (HIDE, "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"),
}


def left_by(event):
    """What a browser does that keeps the page as it is left, for the way back."""
    return event if "(" in event else f"dispatchEvent(new PageTransitionEvent('{event}', {{persisted: true}}))"


@pytest.mark.parametrize("way", LEFT)
def test_a_page_that_was_left_follows_again_and_once(served, open_page, way):
    """As often as it is left: one stream each time, which ends when it is left."""
    page = open_page(served.address, has_clock=True)
    expect(jobs_link(page, "digits-b")).to_be_visible()
    away, back = map(left_by, LEFT[way])
    followed, ended = [], []
    page.on("request", lambda asked: followed.append(asked) if "/live" in asked.url else None)
    page.on("requestfailed", lambda asked: ended.append(asked) if "/live" in asked.url else None)
    for time in range(1, 4):
        with page.expect_event("requestfailed", lambda asked: "/live" in asked.url):
            page.evaluate(away)
            page.clock.fast_forward(SILENT_MS)
        page.evaluate(back)
        served.change(with_job(f"digits-{time}"))
        expect(jobs_link(page, f"digits-{time}")).to_be_visible()
        assert (len(followed), len(ended)) == (time, time)


def test_ten_thousand_nodes_are_a_picture_and_a_table(serve, open_page):
    """Cells in place of columns; one tells which nodes it stands for."""
    nodes = tuple(node(f"node-{n:05}", gpus=8) for n in range(10_000))
    pods = tuple(pod(f"big-trainer-{n}", on=f"node-{n:05}", job="big", ordinal=n, gpus=8) for n in range(5_000))
    documents = ClusterDocuments(now_s=NOW_S, nodes=nodes, pods=pods, jobs=(job("big", high=9_000, ready=5_000),))
    large = serve(FixedSource(documents))
    page = open_page(large.address)
    expect(page.get_by_text("10,000 nodes, 10 to a cell.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="big").first).to_contain_text("40000 GPUs")
    page.locator(".heat rect").first.hover()
    expect(page.locator("#told")).to_contain_text("node-00000 to node-00009, 100% in use")
    page.mouse.move(0, 0)
    page.locator(".heat").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#told")).to_contain_text("node-00400 to node-00409, 100% in use")
    assert page.evaluate("document.querySelectorAll('*').length") < 5_000


def test_many_nodes_are_drawn_by_pool(serve, open_page):
    """Each field tells its pool's use, and has a place of its own for the arrow keys."""
    pools = {"a100": ("g", 8, 50), "web": ("c", 0, 45)}
    nodes = tuple(
        node(f"{letter}-{n:02}", gpus=gpus, labels={"karpenter.sh/nodepool": pool})
        for pool, (letter, gpus, count) in pools.items()
        for n in range(count)
    )
    page = open_page(serve(FixedSource(ClusterDocuments(now_s=NOW_S, nodes=nodes))).address)
    expect(page.get_by_role("heading", level=3, name="Pool a100 50 nodes, 0% of 400 GPUs in use")).to_be_visible()
    expect(page.get_by_role("heading", level=3, name="Pool web 45 nodes, 0% of 180 cores in use")).to_be_visible()
    for pool, told in (("a100", "g-40"), ("web", "c-40")):
        page.get_by_role("img", name=f"Use of the nodes of pool {pool}").focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        expect(page.locator("#told")).to_contain_text(told)


def test_nothing_there_is_said_in_words(serve, open_page):
    empty = serve(FixedSource(ClusterDocuments(now_s=NOW_S)))
    page = open_page(empty.address)
    expect(page.get_by_text("There is no job.")).to_be_visible()
    expect(page.get_by_text("There is no node.")).to_be_visible()
    page.goto(empty.base + "/decisions")
    expect(page.get_by_text("No line has all of these words.")).to_be_visible()


def test_a_question_is_answered_on_the_same_page(served, open_page):
    """By keyboard alone, and the answer's address can be sent to others."""
    page = open_page(served.base + f"/what-if?token={served.address.partition('=')[2]}")
    page.get_by_role("combobox", name="Node", exact=True).select_option("node-1")
    page.get_by_label("How many").fill("2")
    page.get_by_label("How many").press("Enter")
    expect(page.get_by_role("heading", level=2, name="With node-1 gone, 2 more nodes of 4 cpu, 16Gi")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="tj/team/digits-b")).to_be_visible()
    page.get_by_label("Cores").fill("many")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("row").filter(has_text="tj/team/digits-b")).to_be_visible()


def test_the_last_hour_is_drawn_while_it_goes_by(serve, open_page, monkeypatch):
    """From the second sample on, without a reload."""
    monkeypatch.setattr(sampler, "EVERY_S", 0.05)
    monkeypatch.setattr(sampler, "SHARE", 1.0)
    monkeypatch.setattr(live_stream, "REFRESH_S", 0.5)

    class MovingSource(FixedSource):
        def documents(self):
            self._documents = replace(self._documents, now_s=self._documents.now_s + 3.0)
            return self._documents

    moving = serve(MovingSource(demo_documents()))
    page = open_page(moving.address)
    page.goto(moving.base + "/time")
    expect(page.get_by_role("img", name="cores that web and each job held over time")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="digits-a")).to_contain_text("3.8 cores")


def test_on_paper_the_pictures_keep_their_colours(served, open_page):
    page = open_page(served.address)
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.querySelector('.block')).printColorAdjust") == "exact"


def test_hostile_names_run_nothing(served, open_page):
    """A dialog, an element or a broken layout would come of a name that is not text."""
    page = open_page(served.address)
    dialogs = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    names = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202eevil", "\x1b[2J", "n" * 300]
    jobs = [job(name, message=name, conditions=[condition("Degraded", message=name)]) for name in names]
    pods = [pod(f"{name}-0", on="node-1", job=name, cpu="100m") for name in names]
    documents = demo_documents()
    served.change(
        replace(documents, jobs=(*documents.jobs, *jobs), pods=(*documents.pods, *pods)),
        [line(f"tj/{name}", name, name) for name in names],
    )
    expect(
        page.get_by_role("region", name="Jobs").get_by_role("link", name="<script>alert(1)</script>", exact=True)
    ).to_be_visible()
    assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(served.base + "/decisions")
    expect(page.get_by_role("cell", name="\\u202eevil").first).to_be_visible()
    assert dialogs == []


@pytest.mark.parametrize("path", PATHS)
def test_a_phone_shows_it_without_scrolling_sideways(served, open_page, path):
    page = open_page(served.address, viewport={"width": 360, "height": 740})
    page.goto(served.base + path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CONTRAST = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest("svg, .sr, noscript, title")) continue;
    const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.tagName} ${element.className} ${element.textContent.slice(0, 30)} ${ratio}`);
  }
  return low;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_text_stands_out_in_both_schemes(served, open_page, path, scheme):
    """WCAG AA: 4.5 to 1 for every text."""
    page = open_page(served.address, color_scheme=scheme)
    page.goto(served.base + path)
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("path", PATHS)
def test_what_a_screen_reader_needs_is_there(served, open_page, path):
    """Names of everything that has the focus, headed tables and pictures, headings in order, unique ids."""
    page = open_page(served.address)
    page.goto(served.base + path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert problems_of(page) == []
    found = page.evaluate(
        """() => {
          const wrong = [];
          const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
          if (new Set(ids).size !== ids.length) wrong.push("an id twice");
          const shown = (one) => wrong.push(one.outerHTML.slice(0, 80));
          for (const one of document.querySelectorAll("a, button, input, select"))
            if (!(one.ariaLabel || one.textContent.trim() || one.labels?.length)) shown(one);
          for (const one of document.querySelectorAll("main svg:not(.swatch)"))
            if (!one.getAttribute("aria-label")) shown(one);
          for (const one of document.querySelectorAll("table"))
            if (!one.querySelector("thead th[scope=col]")) wrong.push("a table without heads");
          let level = 0;
          for (const one of document.querySelectorAll("h1, h2, h3")) {
            const next = Number(one.tagName[1]);
            if (next > level + 1) wrong.push(`h${next} after h${level}`);
            level = next;
          }
          if (document.querySelectorAll("h1, main, nav").length !== 3) wrong.push("landmarks");
          return wrong;
        }"""
    )
    assert found == []


def test_the_check_of_accessibility_finds_what_is_wrong(served, open_page):
    """Each rule, on a page of which one thing is broken."""
    page = open_page(served.address)
    page.goto(served.base + "/what-if")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    broken = {
        "document.querySelector('nav').removeAttribute('aria-label')": "a navigation without a name",
        "document.querySelector('h1').outerHTML = '<h3>What if</h3>'": "heading 3 after 0",
        "document.querySelector('header').remove()": "0 landmarks banner",
        "document.querySelector('button').textContent = ''": "a button without a name",
        "for (const one of document.querySelectorAll('select')) one.closest('label').replaceWith(one)": (
            "a combobox without a name"
        ),
        "document.documentElement.lang = ''": "the language of the page is not told",
    }
    for script, told in broken.items():
        page.reload()
        expect(page.get_by_role("button", name="Ask")).to_be_visible()
        assert told not in problems_of(page)
        page.evaluate(script)
        assert told in problems_of(page), script


@pytest.mark.parametrize("width", [360, 1200])
def test_a_job_s_colour_stands_beside_its_name_at_every_width(served, open_page, width):
    """A long name was moved below it."""
    name = "a-job-" + "whose-name-is-long-" * 2 + "1"
    served.change(replace(demo_documents(), jobs=(job(name),)))
    page = open_page(served.address, viewport={"width": width, "height": 740})
    head = page.get_by_role("region", name="Jobs").get_by_role("rowheader").first
    colour, link = head.locator("svg").bounding_box(), head.get_by_role("link").bounding_box()
    assert colour["x"] + colour["width"] <= link["x"]
    assert link["y"] <= colour["y"] + colour["height"] / 2 <= link["y"] + link["height"]
