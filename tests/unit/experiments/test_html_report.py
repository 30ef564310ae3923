"""The reports as a page: as new as they are, no script, nobody else asked, and readable as tables."""

from html.parser import HTMLParser

from experiments.reporting.html_report import DOCS, PAGE, SOURCES, make_html


class Elements(HTMLParser):
    """Elements of a page with their attributes, and the text of each kind."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.texts = [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def of(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


def test_the_page_is_as_new_as_the_reports():
    """`python -m experiments page` writes it."""
    texts = [(DOCS / name).read_text(encoding="utf-8") for name in SOURCES]
    assert PAGE.read_text(encoding="utf-8") == make_html(texts)


def test_all_that_it_names_is_there_and_of_nobody_else():
    page = Elements(PAGE.read_text(encoding="utf-8"))
    named = [one["src"] for one in page.of("img")] + [one["href"] for one in page.of("link")]
    assert len(named) > 10
    assert [one for one in named if not (DOCS / one).is_file()] == []
    ids = {attrs["id"] for _, attrs in page.found if "id" in attrs}
    links = [one["href"] for one in page.of("a")]
    assert [one for one in links if one.startswith("#") and one[1:] not in ids] == []
    assert not page.of("script")
    assert not [attrs for _, attrs in page.found if "style" in attrs or any(name.startswith("on") for name in attrs)]
    assert len(page.of("h1")) == 1
    assert all(one["alt"] for one in page.of("img"))


def test_markup_in_a_report_stays_text_and_tables_have_heads():
    page = Elements(make_html(["# A <b>\n\n<script>x</script>\n\n| a | b |\n|---|---|\n| c | d |\n", "# A <b>\n"]))
    assert not page.of("script")
    assert [one.get("id") for one in (*page.of("h1"), *page.of("h2"))] == ["a-b", "a-b-2"]
    assert [one["scope"] for one in page.of("th")] == ["col", "col", "row"]
    assert len(page.of("td")) == 1
    assert page.of("meta")[1]["content"].startswith("default-src 'none'")
