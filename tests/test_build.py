"""What must fail the build of the book, does: each fault is seeded in a book of one page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
GOOD = "# A page\n\nSee [itself](page.ipynb). The bill is $2\\frac{K-1}{K}S$.\n"


def build(
    folder: Path, text: str = GOOD, code: str = "1 + 1", library: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Build a book of one notebook with the course's own configuration."""
    chapters = folder / "chapters"
    chapters.mkdir(exist_ok=True)
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(text, id="text"),
            nbformat.v4.new_code_cell(code, id="code"),
        ]
    )
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, chapters / "page.ipynb")
    (chapters / "logo.svg").write_bytes((ROOT / "chapters" / "logo.svg").read_bytes())
    (folder / "_config.yml").write_text(
        (ROOT / "_config.yml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (folder / "_toc.yml").write_text("format: jb-book\nroot: chapters/page\n", encoding="utf-8")
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from jupyter_book.cli.main import main; main()",
            "build",
            "--warningiserror",
            "--keep-going",
            str(folder),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | {"PYTHONPATH": str(library)},
    )


def html(folder: Path) -> str:
    return (folder / "_build" / "html" / "chapters" / "page.html").read_text(encoding="utf-8")


def test_a_good_page_builds_and_a_changed_library_builds_it_anew(tmp_path):
    done = build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    page = html(tmp_path)
    assert "<mfrac>" in page and not re.search(r'src="[^"]*(mathjax|thebe)', page, re.I)
    before = (tmp_path / "_build" / "html" / "chapters" / "page.html").stat().st_mtime_ns
    shutil.copytree(ROOT / "dtlib", tmp_path / "changed" / "dtlib")
    with (tmp_path / "changed" / "dtlib" / "units.py").open("a", encoding="utf-8") as file:
        file.write("# another library\n")
    assert build(tmp_path, library=tmp_path / "changed").returncode == 0
    assert (tmp_path / "_build" / "html" / "chapters" / "page.html").stat().st_mtime_ns > before


@pytest.mark.parametrize(
    "fault, why",
    [
        ({"code": "assert 1 + 1 == 3"}, "AssertionError"),
        ({"text": "# A page\n\n[nowhere](nowhere.ipynb)\n"}, "nowhere"),
        ({"text": "# A page\n\n[nowhere](#no-such-heading)\n"}, "no-such-heading"),
        ({"text": "# A page\n\n![](logo.svg)\n"}, "has no alternative text"),
        (
            {"code": "from IPython.display import HTML\nHTML('<img src=\"a.png\">')"},
            "has no alternative text",
        ),
        (
            {"code": "from IPython.display import HTML\nHTML('<svg></svg>')"},
            "has no alternative text",
        ),
        (
            {"code": "from dtlib.facts.registry import fact\nfact('h100-sxm.no_such_fact')"},
            "no_such_fact",
        ),
    ],
    ids=[
        "failing cell",
        "broken link",
        "broken anchor",
        "no alt text",
        "no alt text in HTML",
        "no alt text of a drawing",
        "missing fact",
    ],
)
def test_a_fault_fails_the_build(tmp_path, fault, why):
    done = build(tmp_path, **fault)
    assert done.returncode != 0 and why in done.stdout + done.stderr
