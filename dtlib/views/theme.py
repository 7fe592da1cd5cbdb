"""Colors and type of every figure.

The four colors keep at least 3:1 against white and against the dark page (computed in the tests),
and differ in lightness, so that a figure never rests on hue alone: marks also differ in shape, dash
or label. Ink is ``currentColor``: the page's own text color, in light and dark.
"""

from __future__ import annotations

from typing import Any

__all__ = ["COLORS", "DASHES", "INK", "SHAPES", "VEGA_CONFIG"]

INK = "currentColor"
COLORS = ("#0f7fbf", "#d55e00", "#00916b", "#b0609b", "#8c7a1f")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

VEGA_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "aria": False,  # the figure is one picture with one text, or every mark would be read out
    "font": FONT,
    "view": {"stroke": None},
    "axisX": {"labelAngle": 0},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "gridOpacity": 0.15,
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelOverlap": "greedy",
        "labelSeparation": 6,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 13,
        "orient": "top",
        "titleFontWeight": "normal",
        "symbolStrokeWidth": 2,
        "labelLimit": 260,
        "columns": {"expr": "narrow ? 1 : 2"},
    },
    "text": {"color": INK, "fontSize": 12},
    "rule": {"color": INK},
    "line": {"strokeWidth": 2.5},
    "point": {"size": 60, "filled": True},
    "bar": {"color": COLORS[0]},
    "range": {"category": list(COLORS), "symbol": list(SHAPES)},
}
