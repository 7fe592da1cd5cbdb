"""What a check answers: not attempted, pass, or one hint."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

from dtlib.printable import printable

__all__ = ["NOT_ATTEMPTED", "Verdict", "hint", "passed", "sentence"]

Status = Literal["not attempted", "pass", "hint"]

# Status is carried by a word, a sign and the style of the border: none of them is a color.
_SIGNS: dict[Status, tuple[str, str]] = {
    "not attempted": ("○", "dotted"),
    "pass": ("✓", "solid"),
    "hint": ("→", "dashed"),
}


@dataclass(frozen=True)
class Verdict:
    """The answer of a check, shown by a notebook as a bordered line that reads in light and dark.

    >>> Verdict("hint", "Bits or bytes?")
    Hint: Bits or bytes?
    """

    status: Status
    message: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    def __repr__(self) -> str:
        heading = self.status.capitalize()
        return printable(f"{heading}: {self.message}" if self.message else heading)

    def _repr_html_(self) -> str:
        sign, border = _SIGNS[self.status]
        style = (
            f"border-left: 0.3em {border} currentColor; padding: 0.3em 0.8em; color: inherit; "
            "white-space: pre-wrap"
        )
        return (
            f'<div class="dt-line" role="status" style="{style}">'
            f"<strong>{sign} {self.status.capitalize()}</strong> {escape(self.message)}</div>"
        )


NOT_ATTEMPTED = Verdict("not attempted", "Replace the ... with your answer and run the cell again.")


def passed(explanation: str = "") -> Verdict:
    return Verdict("pass", explanation)


def hint(message: str) -> Verdict:
    return Verdict("hint", message)


def sentence(text: str) -> str:
    """``text`` as a sentence: a capital at the start, and a mark at the end.

    >>> sentence("rank 0 lacks a chunk"), sentence("is it yielded?")
    ('Rank 0 lacks a chunk.', 'Is it yielded?')
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
