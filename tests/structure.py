"""What every page of the book keeps to, as functions from a page to complaints: no complaint, no
objection.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import nbformat
import numpy as np
from markdown_it import MarkdownIt

from dtlib.teaching.checks import Exercise
from dtlib.views.explorer import Explorer
from dtlib.views.prediction import Prediction

MOST_WORDS, MOST_CODE_CELLS, MEDIAN_LINES, NINTH_DECILE_LINES, FEWEST_EXERCISES = 2000, 25, 4, 10, 3
WIDEST_LINE = 90  # what the page shows without scrolling
CLOSING = ("Exercises", "Summary", "Sources", "Next")
# A title says what happens or what the reader does; these are the verbs that titles use so far.
VERBS = re.compile(
    r"\b(?:is|launch|(?:add|ask|cost|count|cut|divide|fit|hold|measure|meet|share|split|sum|take|"
    r"time|train|wait)s?)\b"
)
SKIPPING_TAGS = re.compile(r"skip|raises-exception|nbval-raises|ignore-output", re.IGNORECASE)
MYST_ONLY = re.compile(r"^(`{3,}|:{3,})\{|\{[\w:-]+\}`|\\begin\{", re.MULTILINE)
MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Target:
    """Where a link or an image points, and its text."""

    kind: str
    address: str
    text: str


def cells(notebook: Any, kind: str) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def prose(notebook: Any) -> str:
    """The Markdown of a notebook."""
    return "\n\n".join(cell.source for cell in cells(notebook, "markdown"))


def code_of(notebook: Any) -> str:
    """The code of a notebook."""
    return "\n".join(cell.source for cell in cells(notebook, "code"))


@cache
def text_of(path: Path) -> str:
    """The Markdown of a page, which is a notebook or a Markdown file."""
    if path.suffix == ".ipynb":
        return prose(nbformat.read(path, as_version=4))
    return path.read_text(encoding="utf-8")


def headings(markdown: str) -> list[tuple[int, str]]:
    """(level, text) of each heading; code blocks hold none."""
    tokens = MARKDOWN.parse(markdown)
    return [
        (int(token.tag[1]), tokens[place + 1].content)
        for place, token in enumerate(tokens)
        if token.type == "heading_open"
    ]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(markdown: str) -> set[str]:
    """The anchors of a page, to the depth of ``myst_heading_anchors`` in _config.yml."""
    return {slug(text) for level, text in headings(markdown) if level <= 3}


def targets(markdown: str) -> Iterator[Target]:
    """Links and images, in Markdown and in raw HTML."""
    for block in MARKDOWN.parse(markdown):
        inline = block.children or []
        for place, token in enumerate(inline):
            if token.type == "link_open":
                yield Target("link", str(token.attrGet("href")), inline[place + 1].content)
            elif token.type == "image":
                yield Target("image", str(token.attrGet("src")), token.content)
        html = "".join(
            t.content for t in [block, *inline] if t.type in ("html_block", "html_inline")
        )
        for tag in re.findall(r"<img\b[^>]*>", html):
            alt = re.search(r'\balt="([^"]*)"', tag)
            yield Target("image", re.search(r'\bsrc="([^"]*)"', tag)[1], alt[1] if alt else "")
        for address in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', html):
            yield Target("link", address, "")


def link_complaints(page: Path) -> Iterator[str]:
    """Links to pages and headings that do not exist, and images without alternative text."""
    for target in targets(text_of(page)):
        if target.kind == "image" and not target.text.strip():
            yield f"image {target.address} has no alternative text"
        if re.match(r"[a-z]+:", target.address):
            continue
        file, _, anchor = target.address.partition("#")
        there = page.parent / file if file else page
        if not there.is_file():
            yield f"{target.address}: no such file"
        elif anchor and anchor not in anchors(text_of(there)):
            yield f"{target.address}: no such heading"


def hygiene_complaints(notebook: Any) -> Iterator[str]:
    """What a committed notebook holds that it should not, and lacks that it should have."""
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        yield f"format {notebook.nbformat}.{notebook.nbformat_minor}, needs 4.5"
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "kernelspec is not python3"
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "cells lack an id of their own"
    for number, cell in enumerate(notebook.cells):
        tags = " ".join(cell.metadata.get("tags", []))
        if SKIPPING_TAGS.search(tags) or "NBVAL_" in cell.source:
            yield f"cell {number} is kept from being tested"
        if cell.cell_type == "code" and cell.outputs:
            yield f"cell {number} has outputs"
        if cell.cell_type == "code" and cell.execution_count is not None:
            yield f"cell {number} has an execution count"
        if cell.cell_type == "markdown" and MYST_ONLY.search(cell.source):
            yield f"cell {number} has markup that a notebook does not show"


def words(markdown: str) -> int:
    """Words a reader reads: addresses of links and signs that stand alone are none."""
    return sum(
        bool(re.search(r"\w", word)) for word in re.sub(r"\]\([^)]*\)", "]", markdown).split()
    )


def size_complaints(notebook: Any) -> Iterator[str]:
    count, code = words(prose(notebook)), cells(notebook, "code")
    lines = [sum(bool(line.strip()) for line in cell.source.splitlines()) for cell in code] or [0]
    if count > MOST_WORDS:
        yield f"{count} words, at most {MOST_WORDS}"
    if len(code) > MOST_CODE_CELLS:
        yield f"{len(code)} code cells, at most {MOST_CODE_CELLS}"
    if np.median(lines) > MEDIAN_LINES:
        yield f"the median code cell has {np.median(lines):g} lines, at most {MEDIAN_LINES}"
    if np.percentile(lines, 90) > NINTH_DECILE_LINES:
        decile = np.percentile(lines, 90)
        yield f"the ninth decile of code cells is {decile:g} lines, at most {NINTH_DECILE_LINES}"
    for cell in code:
        hidden = "hide-input" in cell.metadata.get("tags", [])
        yield from (
            f"a line of code has {len(line)} characters, at most {WIDEST_LINE}: {line.strip()[:40]}"
            for line in cell.source.splitlines()
            if len(line) > WIDEST_LINE and not hidden
        )


def tag_complaints(notebook: Any) -> Iterator[str]:
    """On the page a figure's code is left out and imports are folded; no other code is hidden."""
    code = cells(notebook, "code")
    names = imported(code_of(notebook))
    for number, cell in enumerate(code):
        view = (
            isinstance(shown(cell, names), (Explorer, Prediction, FunctionType))
            and "\n" not in cell.source.strip()
        )
        tags = list(cell.metadata.get("tags", []))
        wanted = ["remove-input"] if view else ["hide-input"] if number == 0 else []
        if tags != wanted:
            yield f"the cell {cell.source[:30]!r} has the tags {tags}, not {wanted}"


def opening_complaints(notebook: Any) -> Iterator[str]:
    """Title with a verb, what to expect of the chapter, then one cell of imports."""
    first, *others = notebook.cells
    title = headings(first.source)[0][1] if re.match(r"# \S", first.source) else ""
    if not VERBS.search(title.lower()):
        yield f"the title {title!r} has no verb that tests/structure.py knows"
    for promise in ("You will", "You will learn", "You need", "Time"):
        if not re.search(rf"^\*\*{promise}\W*\*\*", first.source, re.MULTILINE):
            yield f"the opening has no line **{promise}**"
    if not re.search(r"^\*\*Time\W*\*\*.*\d+ minutes", first.source, re.MULTILINE):
        yield "the time is not given in minutes"
    second = others[0] if others else None
    if (
        second is None
        or second.cell_type != "code"
        or not all(
            isinstance(line, (ast.Import, ast.ImportFrom)) for line in ast.parse(second.source).body
        )
    ):
        yield "the second cell is not imports only"


def sections(notebook: Any) -> dict[str, str]:
    """Text of each ``##`` section, by its heading."""
    parts = re.split(r"^## +(.+?) *$", prose(notebook), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def section_complaints(notebook: Any) -> Iterator[str]:
    found = sections(notebook)
    if tuple(found)[-len(CLOSING) :] != CLOSING:
        yield f"the last sections are not {', '.join(CLOSING)}"
    for heading, text in found.items():
        if heading not in CLOSING and not re.search(
            r"^> \*\*Takeaway\.\*\* \S", text, re.MULTILINE
        ):
            yield f"section {heading!r} has no takeaway"
    if "bibliography.ipynb" not in found.get("Sources", ""):
        yield "the sources do not link to the bibliography"


def imported(code: str) -> dict[str, Any]:
    """What the import statements of ``code`` bind; a name that a module lacks is None."""
    names: dict[str, Any] = {}
    for line in ast.walk(ast.parse(code)):
        if isinstance(line, ast.ImportFrom):
            module = importlib.import_module(str(line.module))
            names |= {
                alias.asname or alias.name: getattr(module, alias.name, None)
                for alias in line.names
            }
        elif isinstance(line, ast.Import):
            names |= {
                alias.asname or alias.name.partition(".")[0]: importlib.import_module(
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                for alias in line.names
            }
    return names


def shown(cell: Any, names: dict[str, Any]) -> Any:
    """The imported thing that the last line of a code cell shows or calls, if there is one."""
    lines = ast.parse(cell.source).body
    value = lines[-1].value if lines and isinstance(lines[-1], ast.Expr) else None
    value = value.func if isinstance(value, ast.Call) else value
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return getattr(names.get(value.value.id), value.attr, None)
    return names.get(value.id) if isinstance(value, ast.Name) else None


def view_complaints(notebook: Any) -> Iterator[str]:
    """Names that do not exist, no prediction in a chapter, and one that comes after the answer."""
    code = cells(notebook, "code")
    names, used = imported(code_of(notebook)), code_of(notebook)
    yield from (f"{name} does not exist" for name, thing in names.items() if thing is None)
    views = [type(shown(cell, names)) for cell in code]
    if Prediction not in views:
        yield "no prediction is asked"
    if Explorer not in views:
        yield "no explorer is shown"
    elif Prediction in views and views.index(Explorer) < views.index(Prediction):
        yield "an explorer is shown before the first prediction"
    for name, thing in names.items():
        if (
            isinstance(thing, (Explorer, Prediction, Exercise))
            and len(re.findall(rf"\b{name}\b", used)) < 2
        ):
            yield f"{name} is imported and not used"


def exercise_complaints(notebook: Any) -> Iterator[str]:
    """Each exercise is a statement and a cell with a stub and its check."""
    names = imported(code_of(notebook))
    statements = re.findall(r"^### \S", sections(notebook).get("Exercises", ""), re.MULTILINE)
    checks = [cell for cell in cells(notebook, "code") if re.search(r"\bcheck_\w+\(", cell.source)]
    if min(len(statements), len(checks)) < FEWEST_EXERCISES:
        yield f"{len(statements)} exercises with {len(checks)} checks, at least {FEWEST_EXERCISES}"
    for cell in checks:
        name = re.findall(r"\bcheck_\w+(?=\()", cell.source)[-1]
        if not isinstance(names.get(name), Exercise):
            yield f"{name} is not an exercise of dtlib.teaching"
        if "..." not in cell.source:
            yield f"{name} checks a cell without a stub"


def chapter_complaints(notebook: Any) -> list[str]:
    """Everything a chapter is asked, but its links."""
    checks = (
        hygiene_complaints,
        size_complaints,
        tag_complaints,
        opening_complaints,
        section_complaints,
        view_complaints,
        exercise_complaints,
    )
    return [complaint for check in checks for complaint in check(notebook)]


GREEK = re.compile(
    r"\\(?:alpha|beta|[Gg]amma|[Dd]elta|epsilon|eta|[Tt]heta|kappa|[Ll]ambda|mu|nu|[Xx]i|[Pp]i|rho|"
    r"[Ss]igma|tau|[Pp]hi|chi|[Pp]si|[Oo]mega)"
)


def formulas(markdown: str) -> Iterator[str]:
    """The formulas of a page, without code and without the words in them."""
    text = re.sub(r"```.*?```|`[^`]*`", "", markdown, flags=re.DOTALL)
    for block, inline in re.findall(
        r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+?)\$", text, flags=re.DOTALL
    ):
        yield re.sub(r"\\(?:text|mathrm|operatorname|mathbf)\{[^}]*\}", " ", block or inline)


def symbols(markdown: str) -> set[str]:
    """Letters, Latin and Greek, that stand for something in the formulas of a page."""
    found = {
        token
        for formula in formulas(markdown)
        for token in re.findall(r"\\[A-Za-z]+|[A-Za-z]", formula)
    }
    return {token for token in found if len(token) == 1 or GREEK.fullmatch(token)}
