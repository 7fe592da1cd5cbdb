"""How a figure is printed beside its bar."""

from __future__ import annotations


def row(what: str, value: str, bar: str, holds: bool | None = None) -> None:
    """One line of the report."""
    verdict = "" if holds is None else "holds" if holds else "MISSED"
    print(f"{what:<58} {value:>16}   {bar:<12} {verdict}", flush=True)
