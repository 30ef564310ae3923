"""The page in a real browser: what a stranger sees, hears and can do, without a sleep or a request elsewhere."""

from dataclasses import replace

import pytest

from autoscaler.page.content import sampler
from autoscaler.page.live import live_stream
from autoscaler.views.documents import ClusterDocuments
from tests.browser.accessibility import problems_of
from tests.browser.locators import expect, jobs_link
from tests.harness.page_cluster import (
    NOW_S,
    FixedSource,
    condition,
    demo_documents,
    job,
    line,
    node,
    pod,
)
from tests.harness.pod_keeper import RecordingKeeper

pytestmark = pytest.mark.browser
PATHS = ("/", "/jobs/team/digits-a", "/waiting", "/decisions", "/time", "/what-if")


def test_a_stranger_sees_who_has_the_cluster_and_why_a_job_is_small(served, open_page):
    """The shares in words and numbers, each job's size and reason, each node's pods."""
    page = open_page(served.address)
    who = page.get_by_role("region", name="Who has the cluster")
    expect(who.get_by_role("row").filter(has_text="web")).to_contain_text("5 cores")
    jobs = page.get_by_role("region", name="Jobs")
    expect(jobs.get_by_role("row").filter(has_text="digits-a")).to_contain_text("no node has free capacity")
    expect(page.get_by_role("group", name="node-1: 3.5/4 cores in use")).to_be_visible()


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


def test_ten_thousand_nodes_are_a_picture_and_a_table(serve, open_page):
    """Cells in place of columns; one tells which nodes it stands for."""
    nodes = tuple(node(f"node-{n:05}", gpus=8) for n in range(10_000))
    pods = tuple(pod(f"big-trainer-{n}", on=f"node-{n:05}", job="big", ordinal=n, gpus=8) for n in range(5_000))
    documents = ClusterDocuments(now_s=NOW_S, nodes=nodes, pods=pods, jobs=(job("big", high=9_000, ready=5_000),))
    large = serve(FixedSource(documents))
    page = open_page(large.address)
    expect(page.get_by_text("10,000 nodes, 10 to a cell.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="big").first).to_contain_text("40,000 GPUs")
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
    large = serve(FixedSource(ClusterDocuments(now_s=NOW_S, nodes=nodes)))
    page = open_page(large.address)
    expect(page.get_by_role("heading", level=3, name="Pool a100 50 nodes, 0% of 400 GPUs in use")).to_be_visible()
    expect(page.get_by_role("heading", level=3, name="Pool web 45 nodes, 0% of 180 cores in use")).to_be_visible()
    for pool, told in (("a100", "g-40"), ("web", "c-40")):
        page.get_by_role("img", name=f"Use of the nodes of pool {pool}").focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        expect(page.locator("#told")).to_contain_text(told)
    large.change(ClusterDocuments(now_s=NOW_S, nodes=nodes, jobs=(job("later"),)))
    expect(jobs_link(page, "later")).to_be_visible()
    expect(page.locator(".pointed")).to_have_count(2)  # the one reached in each, also in a new part


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
