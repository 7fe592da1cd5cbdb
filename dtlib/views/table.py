"""Tables as HTML: a caption, headings that a screen reader announces, and the page's own text
color.

A table brings its style along, since a notebook has no style sheet of ours; it has to insist, since
notebooks and the book's theme color every second row for a light page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["STYLE", "Table"]

STYLE = """<style>
.dt-table { overflow-x: auto; color: inherit; }
.dt-table table { width: 100%; margin: 0.4rem 0; border: 0; border-collapse: collapse;
  table-layout: auto; color: inherit; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
.dt-table caption { caption-side: top; text-align: left; color: inherit; font-weight: 650; }
.dt-table tr { background: transparent !important; }
.dt-table :is(td, th) { padding: 0.3rem 0.9rem 0.3rem 0; text-align: left !important;
  vertical-align: top; color: inherit; white-space: normal; overflow-wrap: break-word; border: 0;
  font-weight: 400; max-width: none;
  border-bottom: 1px solid color-mix(in srgb, currentColor 22%, transparent); }
.dt-table th[scope="col"] { font-weight: 650; }
</style>"""


@dataclass(frozen=True)
class Table:
    """Rows of text; the first cell of a row is its heading.

    >>> Table("Bytes a parameter", ("Gradients", "Bytes"), (("BF16", "16"), ("FP32", "18"))).rows[1]
    ('FP32', '18')
    >>> Table("Bytes a parameter", ("Gradients", "Bytes"), (("BF16",),))
    Traceback (most recent call last):
    ...
    ValueError: rows must have 2 cells, one for each heading, got ('BF16',)
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if not self.caption.strip():
            raise ValueError(f"caption must say what the table holds, got {self.caption!r}")
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(
                    f"rows must have {len(self.headings)} cells, one for each heading, got {row!r}"
                )

    def html(self) -> str:
        """The table without its style. If it is wider than its place it scrolls there, by keyboard
        too.
        """
        caption = escape(self.caption)
        head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in self.headings)
        body = "".join(f"<tr>{_cells(row)}</tr>" for row in self.rows)
        return (
            f'<div class="dt-table" role="region" aria-label="{caption}" tabindex="0">'
            f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _repr_html_(self) -> str:
        return self.html() + STYLE


def _cells(row: Sequence[str]) -> str:
    first, *others = map(escape, row)
    return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others)
