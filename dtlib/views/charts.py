"""What the charts of several explorers have in common: axes, the rule at a value, and how named
things look.

A named thing (an algorithm, a tier) keeps its color, dash and shape in every chart of a chapter, so
that it is told apart without color, too.

>>> kinds = Looks(("ring", "tree"))
>>> kinds.color("algorithm").to_dict()["scale"]["range"]
['#0f7fbf', '#d55e00']
>>> kinds.only("tree").dash("algorithm").to_dict()["scale"]
{'domain': ['tree'], 'range': [[6, 3]]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dtlib.units import GiB, KiB, MiB
from dtlib.views.theme import COLORS, DASHES, INK, SHAPES

__all__ = ["Looks", "curves", "log_axis", "payload_axis", "rule", "table", "time_axis"]

# A Vega expression for the labels of an axis in bytes: "32 KiB", "1 GiB".
BINARY_BYTES = (
    f"datum.value < {MiB} ? datum.value / {KiB} + ' KiB' : "
    f"datum.value < {GiB} ? datum.value / {MiB} + ' MiB' : datum.value / {GiB} + ' GiB'"
)
# A Vega expression for the labels of an axis in seconds: "10 µs", "1 s".
SECONDS = (
    "datum.value < 1e-3 ? round(datum.value * 1e6) + ' µs' : "
    "datum.value < 1 ? round(datum.value * 1e3) + ' ms' : datum.value + ' s'"
)


@dataclass(frozen=True)
class Looks:
    """How named things look: each has the color, dash and shape of its place among ``names``."""

    names: Sequence[str]
    colors: Sequence[str] = COLORS
    dashes: Sequence[Sequence[int]] = DASHES
    shapes: Sequence[str] = SHAPES

    def only(self, *names: str) -> Looks:
        """Some of them, looking as they did."""
        places = [list(self.names).index(name) for name in names]
        all_looks = (self.colors, self.dashes, self.shapes)
        return Looks(names, *([looks[place] for place in places] for looks in all_looks))

    def color(self, of: str, kind: Any = alt.Color, **options: Any) -> Any:
        """The color of the field ``of``; ``kind`` may be ``alt.Fill`` or ``alt.Stroke``, and
        ``options`` are those of the channel, such as ``legend``.
        """
        return self._channel(kind, of, self.colors, options)

    def dash(self, of: str, **options: Any) -> alt.StrokeDash:
        """The dash of the field ``of``."""
        return self._channel(alt.StrokeDash, of, [list(dash) for dash in self.dashes], options)

    def shape(self, of: str, **options: Any) -> alt.Shape:
        """The shape of the field ``of``."""
        return self._channel(alt.Shape, of, self.shapes, options)

    def _channel(self, kind: Any, of: str, looks: Sequence[Any], options: dict[str, Any]) -> Any:
        scale = alt.Scale(domain=list(self.names), range=list(looks[: len(self.names)]))
        return kind(f"{of}:N", scale=scale, **{"title": None} | options)


def table(name: str) -> alt.Chart:
    """A chart of the explorer's table ``name``, still without marks."""
    return alt.Chart(alt.NamedData(name))


def log_axis(
    kind: Any, field: str, title: str, domain: Sequence[float], values: Sequence[float], **axis: Any
) -> Any:
    """``kind`` (``alt.X`` or ``alt.Y``) of ``field`` on a logarithmic scale over ``domain``, with
    ticks at ``values``; ``axis`` has options such as ``format``.
    """
    scale = alt.Scale(type="log", domain=[domain[0], domain[-1]], nice=False)
    return kind(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(values=list(values), **axis))


def payload_axis(field: str, domain: Sequence[float]) -> alt.X:
    """Payloads from 1 KiB to some GiB along the x axis."""
    values = (KiB, 32 * KiB, MiB, 32 * MiB, GiB)
    return log_axis(alt.X, field, "Payload S", domain, values, grid=False, labelExpr=BINARY_BYTES)


def time_axis(kind: Any, field: str, values: Sequence[float], title: str = "Time") -> Any:
    """Times in seconds from the first to the last of the ticks ``values``: "10 µs", "1 s"."""
    return log_axis(kind, field, title, values, values, labelExpr=SECONDS)


def rule(chart: alt.Chart, **place: Any) -> alt.Chart:
    """A dashed line in the page's ink at a value, such as ``x="at:Q"``."""
    return chart.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=INK).encode(**place)


def curves(looks: Looks, of: str, x: Any, y: Any, *below: Any) -> alt.LayerChart:
    """The table "curves": a line for each name in its column ``of``, and sparse points on it where
    its column ``mark`` is true; other layers lie ``below`` them.

    The legend shows color and shape, since dashes would be drawn as outlines of the shapes.
    """
    symbols = alt.Legend(symbolSize=110)
    base = table("curves").encode(x=x, y=y, color=looks.color(of, legend=symbols))
    lines = base.mark_line(clip=True).encode(strokeDash=looks.dash(of, legend=None))
    marked = base.transform_filter("datum.mark").mark_point(opacity=1, clip=True)
    points = marked.encode(shape=looks.shape(of, legend=symbols))
    return alt.layer(*below, lines, points).resolve_legend(strokeDash="independent")
