"""The bibliography: every source of the registry, and every figure that was read from it.

>>> from dtlib.facts.registry import fact
>>> printed(fact("h100-sxm.scaleup_printed")), reading(fact("h100-sxm.scaleup_printed"))
('900 GB/s', 'nominal, sum of both directions; NVLink 4, 18 links')
>>> printed(fact("llama-2-70b.parameters")), printed(fact("llama-3-405b.training_flops"))
('68,976,648,192 parameters', '3.8 × 10^25 FLOP')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

from dtlib.facts import registry
from dtlib.facts.fact import Fact, Source
from dtlib.units import si
from dtlib.views.table import STYLE, Table

__all__ = ["References", "printed", "reading", "references"]

HEADINGS = ("Figure", "Value", "How to read it")
_DIRECTIONS = {"each way": "each way", "sum of both": "sum of both directions"}


def printed(fact: Fact) -> str:
    """The value with its unit, complete: no digit of the registry is rounded away."""
    if isinstance(fact.value, bool):
        return "yes" if fact.value else "no"
    if isinstance(fact.value, str):
        return fact.value
    if fact.unit in ("B", "B/s", "FLOP/s"):
        return si(fact.value, fact.unit, digits=12)
    number = _number(fact.value)
    return number if fact.unit == "1" else f"{number} {fact.unit.replace('B/', 'bytes per ')}"


def _number(value: float) -> str:
    if value >= 1e15:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{float(mantissa):g} × 10^{int(exponent)}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,g}"


def reading(fact: Fact) -> str:
    """Kind, direction, convention and note, in words."""
    convention = fact.convention if fact.convention != "none" else ""
    words = ", ".join(
        word for word in (fact.kind, _DIRECTIONS.get(fact.direction, ""), convention) if word
    )
    return f"{words}; {fact.note}" if fact.note else words


def _row(fact: Fact) -> tuple[str, ...]:
    return fact.key.rpartition(".")[2].replace("_", " "), printed(fact), reading(fact)


def _tables(facts: Sequence[Fact]) -> str:
    """One table for each group, such as a model or an accelerator, under its printed name."""
    names = {
        name.lower(): name
        for name in (*registry.accelerators(), *registry.models(), *registry.training_runs())
    }
    grouped = groupby(facts, key=lambda fact: (fact.key.rpartition(".")[0], fact.checked))
    return "".join(
        Table(
            f"{names.get(group, group.capitalize())}, checked {day.isoformat()}",
            HEADINGS,
            tuple(map(_row, members)),
        ).html()
        for (group, day), members in grouped
    )


@dataclass(frozen=True)
class References:
    """Sources with the facts read from each; shown as HTML, the figures folded away under their
    source.
    """

    entries: Sequence[tuple[Source, Sequence[Fact]]] = field(repr=False)

    def _repr_html_(self) -> str:
        entries = "".join(_entry(source, facts) for source, facts in self.entries)
        return f'<div class="dt-references">{entries}</div>{STYLE}{_STYLE}'


_STYLE = """<style>
.dt-references { color: inherit; }
.dt-references section { margin: 0 0 1.6rem; overflow-wrap: anywhere; }
.dt-references p { margin: 0; }
.dt-references summary { cursor: pointer; padding: 0.3rem 0; }
.dt-references .dt-table { margin-bottom: 1rem; }
</style>"""


def _entry(source: Source, facts: Sequence[Fact]) -> str:
    url = escape(source.url)
    figures = "1 figure" if len(facts) == 1 else f"{len(facts)} figures"
    return (
        f"<section><p><strong>{escape(source.title)}.</strong> {escape(source.authors)}, "
        f"{source.year}. "
        f'<a href="{url}">{url}</a></p><p>Read: {escape(source.read)}.</p>'
        f"<details><summary>{figures}</summary>{_tables(facts)}</details></section>"
    )


def references() -> References:
    """Every source of the registry in alphabetical order of its authors, with its facts in the
    registry's order.
    """
    facts = list(registry.all_facts())
    sources = sorted(
        registry.all_sources(), key=lambda source: (source.authors.casefold(), source.year)
    )
    return References(
        tuple(
            (source, tuple(fact for fact in facts if fact.source == source.key))
            for source in sources
        )
    )
