"""Static pictures: a Matplotlib figure as SVG that takes the page's text color, with alternative
text.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

from dtlib.views.theme import COLORS, INK

__all__ = ["Picture", "axes"]

# Matplotlib needs a color it knows: this one is replaced by the page's ink when the figure is
# written.
_STAND_IN = "#010203"
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dtlib",
    "font.size": 12,
    "font.family": "sans-serif",
    "text.color": _STAND_IN,
    "axes.labelcolor": _STAND_IN,
    "axes.edgecolor": _STAND_IN,
    "xtick.color": _STAND_IN,
    "ytick.color": _STAND_IN,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _STAND_IN,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "axes.prop_cycle": matplotlib.cycler(color=COLORS),
}


def axes(*, width_in: float = 7.0, height_in: float = 3.6) -> Any:
    """Matplotlib axes in the style of the book, in a figure of their own."""
    with matplotlib.rc_context(_STYLE):
        return Figure(figsize=(width_in, height_in), layout="constrained").subplots()


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows in words; refuses to be made without the words."""

    figure: Figure
    alt_text: str

    def __post_init__(self) -> None:
        if not self.alt_text.strip():
            raise ValueError(f"alt_text must describe the picture, got {self.alt_text!r}")

    def _repr_html_(self) -> str:
        text = io.StringIO()
        # Texts that were added after the axes were made have Matplotlib's own black.
        for words in self.figure.findobj(Text):
            if words.get_color() == matplotlib.rcParams["text.color"]:
                words.set_color(_STAND_IN)
        with matplotlib.rc_context(_STYLE):
            self.figure.savefig(
                text, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
        svg = text.getvalue().replace(_STAND_IN, INK)
        svg = svg[svg.index("<svg") :]
        alt_text = escape(self.alt_text)
        return (
            f'<figure class="dt-picture"><div role="img" aria-label="{alt_text}">{svg}</div>'
            f"<figcaption>{alt_text}</figcaption></figure>"
        )
