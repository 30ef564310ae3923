"""An open page: it is renewed in place, and goes on when its stream, its server, its line or its viewer was away."""

from dataclasses import replace

import pytest

from tests.browser.locators import expect, jobs_link
from tests.harness.page_cluster import FixedSource, demo_documents, demo_lines, job, pod

pytestmark = pytest.mark.browser
SILENT_MS = 26_000


def with_job(name):
    documents = demo_documents()
    return replace(documents, jobs=(*documents.jobs, job(name)))


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


def test_two_tabs_are_renewed_both(served, open_page):
    first = open_page(served.address)
    second = first.context.new_page()
    second.goto(served.base + "/waiting")
    expect(second.get_by_text("None: every job has its minimum.")).to_be_visible()
    waits = job("late", ready=0, target=0, message="there is no room")
    served.change(replace(demo_documents(), jobs=(waits,)))
    expect(first.get_by_role("region", name="Jobs").get_by_role("link", name="late", exact=True)).to_be_visible()
    expect(second.get_by_role("region", name="cannot start").get_by_role("row").filter(has_text="late")).to_be_visible()


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


def test_the_first_part_changes_the_page_in_place(served, open_page):
    """Who has moved to a pod before the page's stream has begun stays there, and reads on."""
    page = open_page(served.address)
    page.add_init_script(HIDE)  # a page that nobody looks at asks for no stream
    page.reload()
    block = page.get_by_role("link", name="digits-b-trainer-0: trainer, core")
    block.focus()
    expect(page.locator("#told")).to_contain_text("digits-b-trainer-0: trainer, core, Running")
    served.change(with_job("digits-new"))
    page.evaluate(LEFT["other tab"][1])
    expect(jobs_link(page, "digits-new")).to_be_visible()
    expect(block).to_be_focused()
    expect(page.locator("#told")).to_contain_text("digits-b-trainer-0: trainer, core, Running")


def test_a_row_that_stays_keeps_the_focus_when_others_go_or_it_moves(served, open_page):
    page = open_page(served.address)
    link = jobs_link(page, "digits-b")
    link.focus()
    documents = demo_documents()
    served.change(replace(documents, jobs=documents.jobs[1:]))
    expect(jobs_link(page, "digits-a")).to_have_count(0)
    expect(link).to_be_focused()
    served.change(documents)
    expect(jobs_link(page, "digits-a")).to_be_visible()
    page.evaluate("""() => {
      const part = live.cloneNode(true), row = part.querySelector("[id='job-team/digits-b']");
      row.parentNode.prepend(row);
      show(part.innerHTML);
    }""")
    expect(page.get_by_role("region", name="Jobs").get_by_role("rowheader").first).to_contain_text("digits-b")
    expect(link).to_be_focused()
