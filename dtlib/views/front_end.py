"""The front end's files, and how they become one module with Vega inside.

`vl_convert` bundles Vega with our source: nothing is vendored, and nothing is asked of another
host.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import vl_convert

__all__ = ["PAGE_FILES", "css", "notebook_explorer", "notebook_prediction", "page_file"]

PAGE_FILES = ("explorers.js", "page.js", "dtlib.css")


def _source(name: str) -> str:
    return files("dtlib.views").joinpath("front", name).read_text(encoding="utf-8")


def _with_vega(source: str) -> str:
    """One module of ``source`` with Vega in it as ``Vega``.

    The import names a module that vl-convert carries, so nothing is fetched; its own name ``vega``
    is Vega's default export, which is empty, and by way of Vega-Embed the compiler of Vega-Lite
    would come along: half as much again.
    """
    carried = f"https://cdn.jsdelivr.net/npm/vega@{vl_convert.get_vega_version()}/+esm.js"
    return vl_convert.javascript_bundle(f'import * as Vega from "{carried}";\n{source}')


def css() -> str:
    """The style sheet, for the page and for notebooks."""
    return _source("dtlib.css")


@cache
def notebook_explorer() -> str:
    """The anywidget module of an explorer: Vega, the explorer, the kernel as its host."""
    return _with_vega(_source("explorer.js") + _source("kernel.js"))


@cache
def notebook_prediction() -> str:
    """The anywidget module of a prediction."""
    return (
        _source("prediction.js")
        + "\nexport default {"
        + " render: ({ model, el }) => mountPrediction(el, model.get('spec')) };\n"
    )


@cache
def page_file(name: str) -> str:
    """A file of the published page: `explorers.js` has Vega inside and loads when an explorer comes
    near the view.
    """
    if name == "explorers.js":
        return _with_vega(_source("explorer.js") + _source("baked.js"))
    if name == "page.js":
        return _source("prediction.js") + _source("page.js")
    return _source(name)
