"""The rules of ``structure.py``: a small good notebook has no complaints, and each way to break it
has its own.
"""

from __future__ import annotations

import altair as alt
import nbformat
import pytest

from dtlib.formulas.barrier import idle_ranks_after_failure
from dtlib.teaching.checks import Exercise, NumberCheck
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.prediction import Prediction
from tests import structure

# What the notebook imports from this module.
asked = Prediction(
    name="asked",
    question="How many wait?",
    unit="GPUs",
    answer=idle_ranks_after_failure(8),
    because="All.",
)
drawn = Explorer(
    name="drawn",
    title="Twice a number",
    controls=(Control("n", "A number", (1, 2)),),
    readouts={"twice": "Twice n"},
    model=lambda n: Shown({"bars": [{"n": n}]}, {"twice": str(2 * n)}, "Bars."),
    columns={"n": Column("n")},
    chart=alt.Chart(alt.NamedData("bars")).mark_bar().encode(x="n:O"),
)
check_a, check_b, check_c = (
    Exercise(
        id=name,
        chapter="a",
        title=name,
        kind="predict",
        minutes=1,
        points=1,
        task="How many wait?",
        check=NumberCheck(lambda: idle_ranks_after_failure(8)),
    )
    for name in "abc"
)

OPENING = """# A sum is a ring
Eight ranks hold a number each.

**You will** add them up.

**You will learn** what that costs.

**You need** nothing.

**Time** 20 minutes (reading 10, exercises 10)"""
IMPORTS = "from tests.test_structure import asked, check_a, check_b, check_c, drawn"


def good_notebook() -> nbformat.NotebookNode:
    """A small notebook that keeps every rule."""
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    exercises = [
        cell
        for name in "abc"
        for cell in (
            markdown(f"### {name}. Predict: how many wait?\n\n2 minutes."),
            code(f"{name} = ...\ncheck_{name}({name})"),
        )
    ]
    cells = [
        markdown(OPENING),
        code(IMPORTS, metadata={"tags": ["hide-input"]}),
        markdown("## A ring\nHow many?"),
        code("asked", metadata={"tags": ["remove-input"]}),
        code("drawn", metadata={"tags": ["remove-input"]}),
        markdown("Each rank sends $2(K - 1)/K$ of it.\n\n> **Takeaway.** Twice around."),
        markdown("## Exercises"),
        *exercises,
        markdown("## Summary\nTwice around."),
        markdown("## Sources\nSee the [bibliography](bibliography.ipynb)."),
        markdown("## Next\nTrees."),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return notebook


def test_a_good_notebook_has_no_complaints():
    assert structure.chapter_complaints(good_notebook()) == []


def replaced(old, new):
    def break_it(notebook):
        assert any(old in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new)

    return break_it


def changed(source, /, **fields):
    def break_it(notebook):
        next(cell for cell in notebook.cells if cell.source == source).update(fields)

    return break_it


def added(source, count):
    def break_it(notebook):
        notebook.cells[2:2] = [nbformat.v4.new_code_cell(source) for _ in range(count)]

    return break_it


def reveal_first(notebook):
    asked, drawn = (
        next(cell for cell in notebook.cells if cell.source == source)
        for source in ("asked", "drawn")
    )
    asked.source, drawn.source = drawn.source, asked.source


def exercise_removed(notebook):
    notebook.cells = [
        cell for cell in notebook.cells if not cell.source.startswith(("### b", "b = "))
    ]


OUTPUT = nbformat.v4.new_output("stream", text="1")
FAULTS = {
    "output": (changed("asked", outputs=[OUTPUT]), "has outputs"),
    "execution count": (changed("asked", execution_count=3), "has an execution count"),
    "skip tag": (changed("asked", metadata={"tags": ["nbval-skip"]}), "kept from being tested"),
    "skip comment": (changed("drawn", source="# NBVAL_SKIP\ndrawn"), "kept from being tested"),
    "allowed exception": (
        changed("asked", metadata={"tags": ["raises-exception"]}),
        "kept from being tested",
    ),
    "no id": (lambda notebook: notebook.cells[0].pop("id"), "lack an id"),
    "same id": (lambda notebook: notebook.cells[0].update(id=notebook.cells[1].id), "lack an id"),
    "old format": (lambda notebook: notebook.update(nbformat_minor=4), "needs 4.5"),
    "other kernel": (
        lambda notebook: notebook.metadata.kernelspec.update(name="julia"),
        "kernelspec",
    ),
    "directive": (
        replaced("Each rank", "```{note}\nx\n```\nEach rank"),
        "markup that a notebook does not show",
    ),
    "role": (
        replaced("Each rank", "See {ref}`x`. Each rank"),
        "markup that a notebook does not show",
    ),
    "aligned formulas": (
        replaced("Each rank", "\\begin{align}"),
        "markup that a notebook does not show",
    ),
    "too long": (replaced("Each rank", "word " * 2000), "words, at most 2000"),
    "too many cells": (added("1", 25), "code cells, at most 25"),
    "long cells": (added("\n".join("12345"), 9), "median code cell has 5 lines"),
    "a few very long cells": (added("\n".join("1" * 30), 2), "ninth decile"),
    "a wide line": (added("1 " + "+ 1" * 30, 1), "a line of code has 92 characters"),
    "hidden code": (
        changed("a = ...\ncheck_a(a)", metadata={"tags": ["hide-input"]}),
        "has the tags ['hide-input'], not []",
    ),
    "a figure's code on the page": (
        changed("drawn", metadata={}),
        "has the tags [], not ['remove-input']",
    ),
    "no title": (replaced("# A sum is a ring", "A sum is a ring"), "has no verb"),
    "title without a verb": (replaced("# A sum is a ring", "# The ring"), "has no verb"),
    "no promise": (replaced("**You will** add", "Add"), "no line **You will**"),
    "nothing learned": (replaced("**You will learn**", "Learn"), "no line **You will learn**"),
    "no needs": (replaced("**You need** nothing.", ""), "no line **You need**"),
    "no minutes": (replaced("20 minutes", "soon"), "not given in minutes"),
    "setup does work": (replaced(IMPORTS, IMPORTS + "\nx = 1"), "imports only"),
    "no takeaway": (
        replaced("> **Takeaway.** Twice around.", ""),
        "section 'A ring' has no takeaway",
    ),
    "no summary": (replaced("## Summary", "Summary"), "the last sections are not"),
    "no next": (replaced("## Next", "Next"), "the last sections are not"),
    "sources without a link": (
        replaced("(bibliography.ipynb)", "(x.ipynb)"),
        "do not link to the bibliography",
    ),
    "no prediction": (changed("asked", source="drawn"), "no prediction is asked"),
    "no explorer": (changed("drawn", source="asked"), "no explorer is shown"),
    "reveal first": (reveal_first, "before the first prediction"),
    "unknown view": (replaced("drawn", "missing_explorer"), "missing_explorer does not exist"),
    "unused view": (changed("drawn", source="1"), "drawn is imported and not used"),
    "two exercises": (exercise_removed, "2 exercises with 2 checks"),
    "no check": (replaced("check_b(b)", "b"), "3 exercises with 2 checks"),
    "unknown check": (replaced("check_c", "check_d"), "check_d is not an exercise"),
    "solved stub": (replaced("a = ...", "a = 16383"), "checks a cell without a stub"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault):
    break_it, complaint = FAULTS[fault]
    notebook = good_notebook()
    break_it(notebook)
    assert any(complaint in found for found in structure.chapter_complaints(notebook))


@pytest.mark.parametrize(
    ("markdown", "complaint"),
    [
        ("[a](missing.md)", "missing.md: no such file"),
        ("[a](other.md#ring-of-ranks)", "other.md#ring-of-ranks: no such heading"),
        ("[a](#elsewhere)", "#elsewhere: no such heading"),
        ('<a href="missing.html">a</a>', "missing.html: no such file"),
        ("![](ring.svg)", "image ring.svg has no alternative text"),
        ("![A ring](tree.svg)", "tree.svg: no such file"),
        ('Text <img src="ring.svg"> text', "image ring.svg has no alternative text"),
        ('<img src="ring.svg" alt="">', "image ring.svg has no alternative text"),
    ],
)
def test_a_broken_link_is_noticed(tmp_path, markdown, complaint):
    (tmp_path / "ring.svg").write_text("<svg/>", encoding="utf-8")
    (tmp_path / "other.md").write_text(
        "# Other\n\n## A ring, again\n\n#### Too deep for an anchor", encoding="utf-8"
    )
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{markdown}\n", encoding="utf-8")
    assert list(structure.link_complaints(page)) == [complaint]


def test_links_that_lead_somewhere(tmp_path):
    (tmp_path / "ring.svg").write_text("<svg/>", encoding="utf-8")
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_markdown_cell("# Other\n\n## A ring, again")]
        ),
        tmp_path / "other.ipynb",
    )
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[a](other.ipynb#a-ring-again) [b](#page) [c](https://example.org/x#y)\n"
        "![A ring](ring.svg) `[d](missing.md)`\n\n```\n[e](missing.md)\n```\n",
        encoding="utf-8",
    )
    assert list(structure.link_complaints(page)) == []


def test_symbols_are_letters_that_stand_for_something():
    markdown = (
        r"$2(K - 1)/K \cdot S$ in `$x`, $$\alpha \log_2 n + \text{bytes} / B$$"
        r" and \$5 or $\mathrm{max}(t_1)$"
    )
    assert structure.symbols(markdown) == {"K", "S", r"\alpha", "n", "B", "t"}


def test_words_are_what_is_read():
    assert (
        structure.words("The [ring](all-reduce.ipynb#the-ring) costs 2 steps - twice.\n\n| a | b |")
        == 8
    )
