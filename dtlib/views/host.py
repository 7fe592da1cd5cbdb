"""Where a view is shown: as a widget in a notebook, or baked into a page of the book.

The Sphinx extension `dtlib.views.book` sets ``DTLIB_HOST=page`` for the kernels that execute the
chapters.
"""

from __future__ import annotations

import os
from typing import Any

from dtlib.arguments import choice

__all__ = ["mimebundle"]


def mimebundle(view: Any) -> Any:
    """The output of a cell that ends in ``view``: HTML with every state on the page, a live widget
    elsewhere.
    """
    name = type(view).__name__
    where = choice("DTLIB_HOST", os.environ.get("DTLIB_HOST", "notebook"), ("notebook", "page"))
    if where == "page":
        from dtlib.views import page

        return {"text/html": page.html(view), "text/plain": f"<{name} {view.name}>"}
    from dtlib.views import widget

    return widget.widget(view)._repr_mimebundle_()
