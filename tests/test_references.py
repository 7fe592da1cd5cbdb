"""The bibliography: complete, exact to the last digit of the registry, and a table that anyone can
read.
"""

from __future__ import annotations

import re
from datetime import date
from html.parser import HTMLParser

import pytest

from dtlib.facts import registry
from dtlib.facts.fact import Fact, Source
from dtlib.views.references import References, printed, reading, references
from dtlib.views.table import Table

PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
VOID = {"br", "hr", "img", "input", "meta"}


class Page(HTMLParser):
    """What a page holds: text, links, and the tags with their attributes; tags left open are an
    error.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(references()._repr_html_())


def made(**changes: object) -> Fact:
    fields = {
        "key": "group.name",
        "value": 1,
        "unit": "1",
        "direction": "none",
        "convention": "none",
        "kind": "published",
        "source": "book",
        "checked": date(2026, 11, 29),
        **changes,
    }
    return Fact(**fields)


def test_every_source_and_every_fact_is_listed_once(page):
    links = [attributes["href"] for attributes in page.attributes("a")]
    assert sorted(links) == sorted(source.url for source in registry.all_sources())
    for source in registry.all_sources():
        assert f"{source.title}." in page.text and f"{source.authors}, {source.year}." in page.text
        assert source.read in page.text
    rows = [attributes for attributes in page.attributes("th") if attributes.get("scope") == "row"]
    assert len(rows) == len(list(registry.all_facts()))


def test_a_fact_stands_under_its_own_source():
    for source, facts in references().entries:
        assert facts and {fact.source for fact in facts} == {source.key}


def test_every_table_says_when_its_figures_were_checked():
    facts = (
        made(key="group.one"),
        made(key="group.two"),
        made(key="group.three", checked=date(2027, 1, 2)),
    )
    source = Source("book", "Book", "A", 2020, "https://x.org", "all")
    captions = re.findall(r"<caption>(.*?)</caption>", References(((source, facts),))._repr_html_())
    assert captions == ["Group, checked 2026-11-29", "Group, checked 2027-01-02"]


def test_sources_are_ordered_by_author():
    authors = [source.authors.casefold() for source, _ in references().entries]
    assert authors == sorted(authors)


def value_of(text: str) -> float:
    """The number a reader takes from a printed value."""
    number, _, rest = text.partition(" ")
    value = float(number.replace(",", ""))
    if power := re.match(r"× 10\^(\d+)", rest):
        return value * 10.0 ** int(power[1])
    prefixed = re.fullmatch(r"([kMGTPE]?)(?:B|FLOP)(?:/s)?", rest)
    return value * PREFIXES[prefixed[1]] if prefixed else value


def test_printed_values_lose_nothing():
    numbers = [fact for fact in registry.all_facts() if not isinstance(fact.value, (bool, str))]
    assert len(numbers) > 150
    for fact in numbers:
        assert value_of(printed(fact)) == pytest.approx(fact.value, rel=1e-12), fact


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (True, "1", "yes"),
        (False, "1", "no"),
        ("rms", "1", "rms"),
        (0.587, "1", "0.587"),
        (12288, "1", "12,288"),
        (8.0, "B/parameter", "8 bytes per parameter"),
        (30.84e6, "GPU-h", "30,840,000 GPU-h"),
        (80e9, "B", "80 GB"),
    ],
)
def test_printed(value, unit, text):
    assert printed(made(value=value, unit=unit)) == text


def test_a_reading_names_what_doubles_a_rate():
    link = made(value=9e11, unit="B/s", direction="sum of both", kind="nominal")
    assert reading(link) == "nominal, sum of both directions"
    peak = made(value=1979e12, unit="FLOP/s", convention="sparse", note="2:4 sparsity")
    assert reading(peak) == "published, sparse; 2:4 sparsity"


def test_text_cannot_become_markup():
    source = Source(
        "book", "<script>x</script>", 'A & "B"', 2020, 'https://x.org/"><b>', "<i>all</i>"
    )
    page = Page(References(((source, (made(note="1 < 2"),)),))._repr_html_())
    assert {"script", "b", "i"}.isdisjoint(tag for tag, _ in page.tags)
    assert page.attributes("a")[0]["href"] == 'https://x.org/"><b>'
    assert "<script>x</script>." in page.text and "1 < 2" in page.text


def test_tables_have_headings_a_caption_and_scroll_on_a_narrow_page(page):
    assert len(page.attributes("caption")) == len(page.attributes("table")) > 15
    columns = [
        attributes for attributes in page.attributes("th") if attributes.get("scope") == "col"
    ]
    assert len(columns) == 3 * len(page.attributes("table"))
    for attributes in page.attributes("div"):
        if attributes.get("class") == "dt-table":
            assert (
                attributes["role"] == "region"
                and attributes["aria-label"]
                and attributes["tabindex"] == "0"
            )
    assert re.search(r"\.dt-table { overflow-x: auto", page.text)


def test_a_table_takes_the_color_of_its_page():
    html = Table("Sizes", ("Name", "Size"), (("a", "1"),))._repr_html_()
    colors = set(re.findall(r"(?<![-\w])(?:color|background): (\w+)", html))
    assert colors == {"inherit", "transparent"} and "#" not in html and "currentColor" in html


def test_a_table_refuses_a_missing_caption_and_a_short_row():
    with pytest.raises(ValueError, match="caption must say what the table holds, got ' '"):
        Table(" ", ("Name",), ())
    with pytest.raises(ValueError, match="rows must have 2 cells"):
        Table("Sizes", ("Name", "Size"), (("a", "1"), ("b",)))
