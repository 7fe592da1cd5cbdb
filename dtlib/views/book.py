"""The Sphinx extension of the book: views on pages, formulas as MathML, no request to another host.

It tells the kernels that the host is a page, writes the front end's files, and mends what the theme
sends that would log an error in every reader's console.
"""

from __future__ import annotations

import hashlib
import os
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

import dtlib
from dtlib.views import front_end

__all__ = ["setup"]

log = logging.getLogger(__name__)


def _write_front_end(app: Sphinx) -> None:
    """The front end's files become static files of the site."""
    folder = Path(app.doctreedir) / "dtlib-static"
    folder.mkdir(parents=True, exist_ok=True)
    for name in front_end.PAGE_FILES:
        (folder / name).write_text(front_end.page_file(name), encoding="utf-8")
    app.config.html_static_path.append(str(folder))
    app.add_css_file("dtlib.css")
    app.add_js_file("page.js", type="module")


def _write_front_page(app: Sphinx) -> None:
    """The page that sends a reader from the site's root to its first page; without an icon, which
    it would not wait for.
    """
    first, title = f"{app.config.root_doc}.html", escape(app.config.html_title)
    Path(app.outdir, "index.html").write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url={first}">'
        f'<a href="{first}">{title}</a></html>',
        encoding="utf-8",
    )


def _mathml(display: str) -> Any:
    def visit(translator: Any, node: nodes.Element) -> None:
        mathml = convert(node.astext(), display=display)
        if display == "block":
            label = f' id="{node["ids"][0]}"' if node.get("ids") else ""
            mathml = f'<div class="math"{label}>{mathml}</div>'
        translator.body.append(mathml)
        raise nodes.SkipNode

    return visit


def _require_alternative_text(app: Sphinx, document: nodes.document) -> None:
    """A picture without alternative text is a warning, and warnings fail the build."""
    for image in document.findall(nodes.image):
        if not image.get("alt"):
            log.warning("image %s has no alternative text", image["uri"], location=image)
    for raw in document.findall(nodes.raw):
        for tag in re.findall(r"<img\b[^>]*>", raw.astext()):
            if not re.search(r'alt="[^"]+"', tag):
                log.warning(
                    "an image in raw HTML has no alternative text: %s", tag[:80], location=raw
                )
        if "<svg" in raw.astext() and not re.search(r'aria-label="[^"]+"', raw.astext()):
            log.warning("a drawing in raw HTML has no alternative text (aria-label)", location=raw)


def _without_thebe(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Jupyter Book sends the scripts of live code cells twice, which is an error in the console; no
    page here uses them.
    """
    for kind in ("script_files", "css_files"):
        if kind in context:
            context[kind] = [
                file
                for file in context[kind]
                if "thebe" not in f"{file} {getattr(file, 'attributes', '')}".lower()
            ]


def _digest() -> str:
    """Of every file of dtlib: a page holds what dtlib computed, so another dtlib makes every page
    anew.
    """
    folder = Path(dtlib.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(f for f in folder.rglob("*") if f.is_file() and f.suffix != ".pyc"):
        digest.update(
            file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0"
        )
    return digest.hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    os.environ["DTLIB_HOST"] = "page"
    app.add_config_value("dtlib_digest", _digest(), "env", types=[str])
    app.connect("builder-inited", _write_front_end)
    app.connect("builder-inited", _write_front_page)
    app.connect("doctree-read", _require_alternative_text)
    app.connect("html-page-context", _without_thebe, priority=900)
    app.add_html_math_renderer("mathml", (_mathml("inline"), None), (_mathml("block"), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
