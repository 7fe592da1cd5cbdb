"""Views on a published page: HTML that carries every state, computed when the book is built."""

from __future__ import annotations

import json
from functools import singledispatch
from html import escape
from typing import Any

from dtlib.views import encode
from dtlib.views.explorer import Explorer
from dtlib.views.lab import Lab
from dtlib.views.prediction import Prediction

__all__ = ["html"]


def _data(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace(
        "</", "<\\/"
    )
    return f'<script type="application/json">{text}</script>'


@singledispatch
def html(view: Any) -> str:
    """The HTML of ``view``."""
    raise TypeError(f"no page shows a {type(view).__name__}")


@html.register
def _explorer(explorer: Explorer) -> str:
    alt_text = escape(explorer.at(explorer.start).alt_text)
    data = {"spec": encode.explorer_spec(explorer), "baked": encode.baked(explorer)}
    return (
        f'<figure class="dt-explorer" id="explorer-{explorer.name}" '
        f'data-explorer="{explorer.name}">'
        f'<figcaption class="dt-title">{escape(explorer.title)}</figcaption>'
        f'<div class="dt-static" role="img" aria-label="{alt_text}">'
        f"{encode.static_svg(explorer)}</div>"
        f'<p class="dt-says">{alt_text}</p>{_data(data)}</figure>'
    )


@html.register
def _lab(lab: Lab) -> str:
    return lab.html()


@html.register
def _prediction(prediction: Prediction) -> str:
    answer = f"{prediction.answer:.6g} {prediction.unit}. {prediction.because}"
    return (
        f'<div class="dt-prediction" data-prediction="{prediction.name}">'
        f"<p>{escape(prediction.question)}</p><details><summary>Answer</summary><p>{escape(answer)}</p></details>"
        f"{_data(encode.prediction_spec(prediction))}</div>"
    )
