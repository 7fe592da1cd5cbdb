"""A fact: one figure that says its unit, direction, convention, kind, source and the date it was
checked.

Two printed conventions double a number without saying so: a link rate that is the sum of both
directions, and a peak rate that assumes 2:4 sparsity. A fact knows which it is, and refuses to be
read as the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import date

__all__ = ["ConventionError", "Fact", "FactError", "Source"]

# Base units only: a figure in GB or Gb/s would be converted by whoever reads it, sooner or later
# wrongly.
UNITS = (
    "1",
    "B",
    "B/s",
    "B/parameter",
    "FLOP",
    "FLOP/s",
    "GPU-h",
    "GPUs",
    "chips",
    "days",
    "months",
    "parameters",
    "tokens",
)
CHOICES = {
    "unit": UNITS,
    "direction": ("each way", "sum of both", "none"),
    "convention": ("dense", "sparse", "none"),
    "kind": ("nominal", "measured", "derived", "published"),
}


class FactError(ValueError):
    """A fact that lacks a field or holds a wrong one; the message names file, fact and field."""


class ConventionError(ValueError):
    """A fact asked for in a convention it is not printed in."""


@dataclass(frozen=True)
class Source:
    """Where figures come from, and what of it was read."""

    key: str
    title: str
    authors: str
    year: int
    url: str
    read: str


@dataclass(frozen=True)
class Fact:
    """One figure. ``value`` is in ``unit``; architecture facts may also be a flag or a word."""

    key: str
    value: float | int | bool | str
    unit: str
    direction: str
    convention: str
    kind: str
    source: str
    checked: date
    note: str = ""

    def __post_init__(self) -> None:
        for field, options in CHOICES.items():
            if getattr(self, field) not in options:
                raise FactError(
                    f"{self.key}: {field} must be one of {', '.join(map(repr, options))}, "
                    f"got {getattr(self, field)!r}"
                )
        if type(self.checked) is not date:
            raise FactError(
                f"{self.key}: checked must be a date such as 2026-11-29, got {self.checked!r}"
            )
        for field in ("source", "note"):
            if not isinstance(getattr(self, field), str):
                raise FactError(f"{self.key}: {field} must be text, got {getattr(self, field)!r}")
        self._check_value()

    def _check_value(self) -> None:
        if isinstance(self.value, (bool, str)):
            if self.unit != "1":
                raise FactError(
                    f"{self.key}: value must be a number in {self.unit}, got {self.value!r}"
                )
        elif (
            not isinstance(self.value, (int, float))
            or not math.isfinite(self.value)
            or self.value < 0
        ):
            raise FactError(
                f"{self.key}: value must be a finite number of at least 0, got {self.value!r}"
            )
        if (self.unit == "FLOP/s") != (self.convention != "none"):
            raise FactError(
                f"{self.key}: convention must be 'dense' or 'sparse' for FLOP/s and 'none' "
                f"otherwise, got {self.convention!r} for {self.unit}"
            )
        if self.direction != "none" and self.unit != "B/s":
            raise FactError(
                f"{self.key}: direction must be 'none' for {self.unit}, got {self.direction!r}"
            )

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, (bool, str)) else f"{self.value:g}"
        return f"{self.key} = {value} {self.unit} ({self.direction}, {self.convention})"

    def _read(self, what: str, unit: str, field: str, wanted: str) -> float:
        """The value, if it is ``what`` was asked for: of this unit, and ``wanted`` in ``field``."""
        if (
            self.unit != unit
            or getattr(self, field) != wanted
            or isinstance(self.value, (bool, str))
        ):
            raise ConventionError(f"{self} is not {what}")
        return float(self.value)

    @property
    def each_way_Bps(self) -> float:
        """Bytes a second in one direction; a sum of both directions is refused."""
        return self._read("a rate each way", "B/s", "direction", "each way")

    @property
    def dense_FLOPs(self) -> float:
        """Dense FLOP a second; a rate with sparsity is refused."""
        return self._read("a dense rate", "FLOP/s", "convention", "dense")

    def number(self, unit: str) -> float:
        """The value of a fact that is neither a link nor a FLOP rate, if its unit is ``unit``."""
        return self._read(f"a plain number in {unit}", unit, "direction", "none")


FIELDS = tuple(field.name for field in fields(Fact) if field.name != "key")
REQUIRED = tuple(name for name in FIELDS if name != "note")
