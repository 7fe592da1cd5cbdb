"""The book's structure: every chapter is built alike, every link leads somewhere, no page asks
another host.

The rules are in ``structure.py``; ``test_structure.py`` shows each rule a notebook that breaks it.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
import yaml

from dtlib.teaching.checks import Exercise, load_all
from dtlib.views.catalog import EXPLORERS, PREDICTIONS
from dtlib.views.explorer import Explorer
from dtlib.views.prediction import Prediction
from tests import structure

ROOT = Path(__file__).parent.parent
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
PARTS = {
    part["caption"]: [ROOT / entry["file"] for entry in part["chapters"]] for part in TOC["parts"]
}
PAGES = sorted(path for path in (ROOT / "chapters").iterdir() if path.suffix in (".ipynb", ".md"))
NOTEBOOKS = [path for path in PAGES if path.suffix == ".ipynb"]
CHAPTERS = [path.with_suffix(".ipynb") for path in PARTS["The course"]]
GLOSSARY = ROOT / "chapters" / "glossary.md"
NOTATION = ROOT / "chapters" / "notation.md"

SOURCES = (
    "dtlib",
    "chapters",
    "tools",
    "teaching",
    "_config.yml",
    "_toc.yml",
    "README.md",
    "pyproject.toml",
)
TEXT = {".py", ".js", ".css", ".html", ".svg", ".md", ".ipynb", ".yml", ".toml"}
# Hosts that serve scripts, fonts and styles, and the ways in which a page loads from any host.
LOADED = re.compile(
    r"cdn\.|cdnjs|unpkg\.com|jsdelivr|esm\.sh|skypack|fonts\.g(?:oogleapis|static)"
    r"""|\bsrc=\\?["'](?:https?:)?//|<link\b[^>]*href=\\?["'](?:https?:)?//|@import[^;]*//|url\(["']?(?:https?:)?//"""
    r"""|\bimport\b[^\n]*["']https?://|\bfetch\(["'`]https?://""",
    re.IGNORECASE,
)
# It names a module that vl-convert carries: nothing is fetched.
EXPLAINED = ROOT / "dtlib" / "views" / "front_end.py"


def named(paths: list[Path]):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.name)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_every_page_is_in_the_table_of_contents_and_vice_versa():
    listed = [ROOT / TOC["root"], *(path for part in PARTS.values() for path in part)]
    assert len(set(listed)) == len(listed)
    assert {path.with_suffix("") for path in PAGES} == set(listed)


@named(CHAPTERS)
def test_chapter(path):
    assert structure.chapter_complaints(read(path)) == []


@named(NOTEBOOKS)
def test_notebook_is_committed_clean(path):
    assert list(structure.hygiene_complaints(read(path))) == []


@named(PAGES)
def test_links_and_images(path):
    assert list(structure.link_complaints(path)) == []


@named(CHAPTERS)
def test_views_are_in_the_catalog(path):
    """Bench and browser tests go through the catalog: a view that it lacks is tested nowhere."""
    for view in structure.imported(structure.code_of(read(path))).values():
        if isinstance(view, Explorer):
            assert EXPLORERS[view.name] is view
        elif isinstance(view, Prediction):
            assert PREDICTIONS[view.name] is view


@named(CHAPTERS)
def test_exercises_of_a_chapter_are_all_in_it(path):
    imported = structure.imported(structure.code_of(read(path))).values()
    used = {exercise.id: exercise for exercise in imported if isinstance(exercise, Exercise)}
    assert used == {id: one for id, one in load_all().items() if one.chapter == path.stem}


@named(CHAPTERS)
def test_symbols_are_on_the_notation_page(path):
    first_column = "\n".join(
        re.findall(r"^\|([^|]*)\|", NOTATION.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert structure.symbols(structure.text_of(path)) - structure.symbols(first_column) == set()


def glossary() -> dict[str, str]:
    return structure.sections(
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_markdown_cell(GLOSSARY.read_text(encoding="utf-8"))]
        )
    )


def test_glossary_is_alphabetical_and_short():
    terms = list(glossary())
    assert len(terms) >= 35
    assert terms == sorted(terms, key=str.casefold)
    assert len({structure.slug(term) for term in terms}) == len(terms)
    for term, text in glossary().items():
        meaning, *first_use = text.strip().split("\n\n")
        assert 5 <= structure.words(meaning) <= 50 and meaning.endswith("."), term
        assert len(first_use) == 1, term


def test_glossary_says_where_a_term_is_first_used():
    """First used is first linked; a chapter that moves or adds a link moves this line of the
    glossary too.
    """
    wrong = {}
    for term, text in glossary().items():
        link = f"](glossary.md#{structure.slug(term)})"
        using = [path.name for path in CHAPTERS if link in structure.text_of(path)]
        said = re.findall(r"First used in \[[^\]]+\]\(([^)]+)\)|(Used in a later chapter)", text)
        due = using[0] if using else "Used in a later chapter"
        if ["".join(one) for one in said] != [due]:
            wrong[term] = f"should say: {due}"
    assert wrong == {}


def files() -> list[Path]:
    found = [path for name in SOURCES for path in [ROOT / name, *(ROOT / name).rglob("*")]]
    return [
        path
        for path in found
        if path.is_file() and path.suffix in TEXT and ".ipynb_checkpoints" not in path.parts
    ]


def test_nothing_is_loaded_from_another_host():
    checked = [path for path in files() if path != EXPLAINED]
    assert len(checked) > 50
    loading = {
        str(path): found[0]
        for path in checked
        if (found := LOADED.search(path.read_text(encoding="utf-8")))
    }
    assert loading == {}


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js">',
        "<link rel=stylesheet href='//example.org/a.css'>",
        'import * as d3 from "https://example.org/d3.js"',
        "@import url(https://example.org/a.css);",
        "background: url(//example.org/a.png)",
        "https://unpkg.com/vega",
        "fetch('https://example.org/data.json')",
    ],
)
def test_loading_from_another_host_is_noticed(text):
    assert LOADED.search(text)


def test_a_link_is_not_loading():
    assert not LOADED.search(
        '<a href="https://example.org">, [text](https://example.org), source = "https://a.org"'
    )
