"""What must fail the build of the book, does: faults are seeded in small books."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
GOOD = ("# A page\n\nSee [itself](page.ipynb). The bill is $2\\frac{K-1}{K}S$.\n", "1 + 1")
HTML = "from IPython.display import HTML\nHTML('{}')"


def build(folder: Path, **pages: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    """Build a book with the course's own configuration, of notebooks with a text and a cell."""
    chapters = folder / "chapters"
    chapters.mkdir(exist_ok=True)
    for name, (text, code) in pages.items():
        notebook = nbformat.v4.new_notebook(
            cells=[
                nbformat.v4.new_markdown_cell(text, id="text"),
                nbformat.v4.new_code_cell(code, id="code"),
            ]
        )
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, chapters / f"{name}.ipynb")
    shutil.copy(ROOT / "chapters" / "logo.svg", chapters)
    shutil.copy(ROOT / "_config.yml", folder)
    root, *others = (f"chapters/{name}" for name in pages)
    contents = {"format": "jb-book", "root": root}
    if others:
        contents["chapters"] = [{"file": name} for name in others]
    (folder / "_toc.yml").write_text(yaml.safe_dump(contents), encoding="utf-8")
    library = folder / "changed" if (folder / "changed").exists() else ROOT
    command = "from jupyter_book.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", command, "build", "--warningiserror", "--keep-going", str(folder)],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | {"PYTHONPATH": str(library)},
    )


def test_a_good_page_builds_and_a_changed_library_builds_it_anew(tmp_path):
    done = build(tmp_path, page=GOOD)
    assert done.returncode == 0, done.stdout + done.stderr
    page = tmp_path / "_build" / "html" / "chapters" / "page.html"
    html = page.read_text(encoding="utf-8")
    assert "<mfrac>" in html and not re.search(r'src="[^"]*(mathjax|thebe)', html, re.I)
    before = page.stat().st_mtime_ns
    shutil.copytree(ROOT / "dtlib", tmp_path / "changed" / "dtlib")
    with (tmp_path / "changed" / "dtlib" / "units.py").open("a", encoding="utf-8") as file:
        file.write("# another library\n")
    assert build(tmp_path, page=GOOD).returncode == 0
    assert page.stat().st_mtime_ns > before


def test_a_failing_cell_fails_the_build(tmp_path):
    failing = "from dtlib.facts.registry import fact\nfact('h100-sxm.no_such')"
    done = build(tmp_path, page=("# A page\n", failing))
    assert done.returncode != 0 and "got 'h100-sxm.no_such'" in done.stdout + done.stderr


def test_every_fault_is_a_warning_and_warnings_fail_the_build(tmp_path):
    """All faults in one book, since a build takes its time; a warning of any of them fails it."""
    text = "[nowhere](nowhere.ipynb)\n\n[nowhere](#no-such-heading)\n\n![](logo.svg)\n"
    done = build(
        tmp_path,
        text=(f"# A page\n\n{text}", "1"),
        image=("# An image\n", HTML.format('<img src="a.png">')),
        drawing=("# A drawing\n", HTML.format("<svg></svg>")),
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    for page, fault in (
        ("text", "nowhere.ipynb"),
        ("text", "no-such-heading"),
        ("text", "has no alternative text"),
        ("image", "has no alternative text"),
        ("drawing", "has no alternative text"),
    ):
        assert re.search(rf"chapters/{page}\b.*WARNING.*{fault}", said), (page, fault, said)
