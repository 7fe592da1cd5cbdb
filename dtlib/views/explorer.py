"""Explorers: one model, one chart, one front end, two hosts.

An explorer is a Python function of a few discrete controls. It returns named tables, readouts and
an alternative text; a Vega-Lite chart draws the tables. In a notebook the kernel calls the function
(`dtlib.views.widget`). For the published page every state is computed once, when the book is built
(`dtlib.views.page`). ``front/explorer.js`` shows both.

>>> from dtlib.views.explorer import Control, Explorer, Shown
>>> import altair as alt
>>> def double(n: int) -> Shown:
...     bars = [{"n": n, "twice": 2 * n}]
...     return Shown({"bars": bars}, {"twice": str(2 * n)}, f"Twice {n} is {2 * n}.")
>>> explorer = Explorer(
...     name="twice", title="Twice a number", model=double,
...     controls=(Control("n", "A number", (1, 2, 3)),),
...     readouts={"twice": "Twice n"}, columns={"n": Column("n"), "twice": Column("Twice n")},
...     chart=alt.Chart(alt.NamedData("bars")).mark_bar().encode(x="n:O", y="twice:Q"))
>>> explorer.shown(n=3).readouts
{'twice': '6'}
>>> explorer.shown(n=4)
Traceback (most recent call last):
...
ValueError: n must be one of 1, 2, 3, got 4
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt

from dtlib.arguments import choice

__all__ = ["Column", "Control", "Explorer", "Shown"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Shown:
    """What an explorer shows in one state.

    - ``tables``: rows by table name. The chart draws them, and the explorer's ``columns`` name what
      is in them.
    - ``readouts``: text by readout name, as printed beside the chart.
    - ``alt_text``: one sentence that says what the chart shows. It stands below the chart, and a
      screen reader reads it out when a control moves.
    """

    tables: Mapping[str, Sequence[Row]]
    readouts: Mapping[str, str]
    alt_text: str


@dataclass(frozen=True)
class Control:
    """A control with a few values.

    - ``values``: what the model is called with, in order.
    - ``texts``: what the reader sees (default: ``str`` of each value).
    - ``start``: the value shown first (default: the first).
    - ``kind``: "slider", or "choice" for a few named options.
    - ``limit``: how many of the values can be had, from the values of the controls before this one
      (default: all).
    - ``play``: whether a button steps through the values.
    """

    name: str
    label: str
    values: tuple[Any, ...]
    texts: tuple[str, ...] = ()
    start: Any = None
    kind: str = "slider"
    limit: Callable[..., int] | None = None
    play: bool = False

    def __post_init__(self) -> None:
        choice("kind", self.kind, ("slider", "choice"))
        if len(self.values) < 2:
            raise ValueError(f"control {self.name!r} needs two values or more, got {self.values!r}")
        if not self.texts:
            object.__setattr__(self, "texts", tuple(str(value) for value in self.values))
        if len(self.texts) != len(self.values):
            raise ValueError(
                f"control {self.name!r} has {len(self.values)} values but {len(self.texts)} texts"
            )
        object.__setattr__(
            self,
            "start",
            self.values[0] if self.start is None else choice("start", self.start, self.values),
        )

    def index(self, value: Any) -> int:
        """The position of ``value``, which must be one of the values."""
        return self.values.index(choice(self.name, value, self.values))


@dataclass(frozen=True)
class Column:
    """How a column of a table is printed: a heading with its unit, and a number format of
    d3-format.
    """

    label: str
    format: str = ""


@dataclass(frozen=True, eq=False)
class Explorer:
    """One explorer; the module's docstring shows how to make one.

    - ``name``: unique, lower case with dashes, its address on the page.
    - ``model``: called with one keyword argument per control, returns a `Shown`.
    - ``chart``: an Altair chart over ``alt.NamedData`` tables, without data and without a width.
    - ``readouts``: label by readout name, in the order shown.
    - ``columns``: the columns of the table of numbers, by the field's name.
    - ``height``: of the chart, in px.
    """

    name: str
    title: str
    controls: tuple[Control, ...]
    model: Callable[..., Shown]
    chart: alt.TopLevelMixin
    readouts: Mapping[str, str]
    columns: Mapping[str, Column]
    height: int = 280
    start: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.name != self.name.lower() or " " in self.name:
            raise ValueError(f"name must be lower case with dashes, got {self.name!r}")
        if not self.start:
            object.__setattr__(self, "start", tuple(c.index(c.start) for c in self.controls))

    def __call__(self, **values: Any) -> Explorer:
        """The same explorer, starting at these values."""
        unknown = sorted(set(values) - {c.name for c in self.controls})
        if unknown:
            raise TypeError(
                f"{self.name} has no control {unknown[0]!r}: it has "
                f"{', '.join(c.name for c in self.controls)}"
            )
        start = tuple(
            c.index(values[c.name]) if c.name in values else i
            for c, i in zip(self.controls, self.start, strict=True)
        )
        return replace(self, start=self.within(start))

    def values(self, at: Sequence[int]) -> dict[str, Any]:
        """The controls' values at these positions."""
        return {c.name: c.values[i] for c, i in zip(self.controls, at, strict=True)}

    def shown(self, **values: Any) -> Shown:
        """What is shown at these values; controls left out keep their start."""
        return self.at(self(**values).start)

    def at(self, at: Sequence[int]) -> Shown:
        """What is shown at these positions of the controls; refuses a model that leaves something
        out.
        """
        shown = self.model(**self.values(at))
        if set(shown.readouts) != set(self.readouts):
            raise ValueError(
                f"{self.name}: the model returned readouts {sorted(shown.readouts)}, "
                f"declared are {sorted(self.readouts)}"
            )
        fields = {name for rows in shown.tables.values() for row in rows for name in row}
        missing = set(self.columns) - fields
        if missing:
            raise ValueError(f"{self.name}: no table has the column {sorted(missing)[0]!r}")
        return shown

    def counts(self, at: Sequence[int]) -> tuple[int, ...]:
        """How many values each control has, given those before it."""
        values = self.values(at)
        counts = []
        for position, control in enumerate(self.controls):
            before = {c.name: values[c.name] for c in self.controls[:position]}
            counts.append(control.limit(**before) if control.limit else len(control.values))
        return tuple(counts)

    def within(self, at: Sequence[int]) -> tuple[int, ...]:
        """These positions, each moved into the range its control has."""
        at = [
            min(max(int(i), 0), len(c.values) - 1) for c, i in zip(self.controls, at, strict=True)
        ]
        for position in range(len(at)):
            at[position] = min(at[position], self.counts(at)[position] - 1)
        return tuple(at)

    def states(self) -> Iterator[tuple[int, ...]]:
        """The positions of every state."""
        for at in itertools.product(*(range(len(c.values)) for c in self.controls)):
            if self.within(at) == at:
                yield at

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from dtlib.views import host  # a view that is never shown needs no widget library

        return host.mimebundle(self)
