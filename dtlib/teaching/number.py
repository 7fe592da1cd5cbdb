"""Checks of a number: right to three significant digits, or a hint that names the slip and not the
answer.

One rule for all of them: an answer counts when it agrees with the right one to three significant
digits, rounded or cut off, and a count, which is a Python int, only when it is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.teaching.answers import plain, verdict_within
from dtlib.teaching.verdict import NOT_ATTEMPTED, Verdict, hint, passed

__all__ = ["NumberCheck", "agrees", "close", "not_a_number", "slip"]

# The fallback names no digit at all: whatever the answer is, no hint can contain it.
WRONG_VALUE = (
    "Not this value. Write the formula down with its units, then put in the numbers one by one."
)
TOO_FEW_DIGITS = "Close: give three significant digits."
NEGATIVE = (
    "This is negative, and the answer is not: look at the order of a difference, or at a sign."
)
READING_S = 2.0
PREFIX = (
    1e-3  # how exactly a factor of 1.024 must be met: a rounded number lies that near it by chance
)


def not_a_number(answer: Any) -> str | None:
    """The hint for an ``answer`` (made ``plain``) that is no number or not a finite one, or None."""
    if answer is None:
        return (
            "This is None: no value arrived. print(...) shows a value but returns None; assign "
            "or return the value."
        )
    if isinstance(answer, bool):
        return "This is a truth value (True or False), and a number is asked."
    if isinstance(answer, (str, bytes)):
        return "This is a text. Write the number without quotes, and without its unit."
    if isinstance(answer, complex):
        return (
            "This is a complex number. In Python a power is written **, and j marks an "
            "imaginary number."
        )
    if isinstance(answer, np.ndarray):
        return (
            "This is an array with a single element: take the element out of it."
            if answer.size == 1
            else "This is an array, and one number is asked."
        )
    if isinstance(answer, (list, tuple, set, frozenset, dict)):
        return (
            "This is a collection with a single element: take the element out of it, or drop a "
            "stray comma."
            if len(answer) == 1
            else "This is a collection of values, and one number is asked."
        )
    if callable(answer):
        return "This is a function and not its result: call it, with parentheses."
    if not isinstance(answer, (int, float)):
        return f"This is of type {type(answer).__name__}, and a number is asked."
    if isinstance(answer, int):
        return None
    if math.isnan(answer):
        return (
            "This is nan (not a number). Look for zero divided by zero, or infinity minus infinity."
        )
    if math.isinf(answer):
        return "This is infinite. Look for a division by zero or an overflow."
    return None


def close(value: float, target: float, rtol: float) -> bool:
    """Whether ``value`` is within ``rtol`` of ``target``, however large both are."""
    try:
        return value == target or abs(value - target) <= rtol * abs(target)
    except OverflowError:  # a whole number too large to be compared with a fraction
        return False


def agrees(answer: float, value: float, digits: int = 3) -> bool:
    """Whether ``answer`` is ``value`` to so many significant digits: within half a unit of the
    last, or cut off there.

    >>> agrees(12.6, 12.557), agrees(12.5, 12.557), agrees(12.7, 12.557), agrees(13, 12.557, digits=2)
    (True, True, False, True)
    """
    if not value:
        return answer == value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    cut = math.trunc(value / unit) * unit
    return close(answer, value, (1 + 1e-9) * unit / 2 / abs(value)) or close(answer, cut, 1e-9)


def _two_digits(answer: float, expected: float) -> bool:
    """Whether ``answer`` is the right one with two significant digits instead of three."""
    return agrees(answer, expected, digits=2) and close(float(f"{answer:.1e}"), answer, 1e-9)


def _sizes(unit: str) -> bool:
    """Whether ``unit`` is one of bytes or of a rate: only those have binary prefixes, and bits."""
    return "B" in unit or "byte" in unit


def _factor_slip(answer: float, expected: float, unit: str, both_directions: bool) -> str | None:
    """The slip behind an answer that is the right one times or over a telling factor."""

    def off_by(factor: float) -> bool:
        return agrees(answer, expected * factor) or agrees(answer, expected / factor)

    asked = f" The answer is asked in {unit}."
    times = max(answer / expected, expected / answer)
    if _sizes(unit) and any(close(times, 1.024**power, PREFIX) for power in range(1, 5)):
        return (
            "Decimal and binary prefixes are mixed: GB counts by thousands, GiB by powers of "
            f"two.{asked}"
        )
    if _sizes(unit) and any(close(times, 1024.0**power, PREFIX) for power in range(1, 5)):
        return f"A binary prefix (KiB, MiB, GiB) is too many or too few.{asked}"
    if _sizes(unit) and off_by(8):
        return (
            "Off by a factor of eight: bits and bytes, or the eight GPUs of a node, are mixed "
            f"up.{asked}"
        )
    if unit in ("%", "share") and off_by(100):
        return "Percent and share are mixed up: " + (
            "percent is asked." if unit == "%" else "a share is asked."
        )
    power = round(math.log10(times))
    if unit and power and off_by(10.0**power):
        return "The digits are right and the power of ten is not" + (
            f": look at the prefixes (kilo, mega, giga).{asked}" if _sizes(unit) else f".{asked}"
        )
    if both_directions and off_by(2):
        return "Off by a factor of two: one direction and the sum of both are mixed up."
    return None


def slip(answer: Any, expected: Any, unit: str = "", both_directions: bool = False) -> str:
    """The hint for a wrong number, from how it compares with the right one; ``unit`` says which
    slips can happen.

    >>> slip(50e9, 400e9, "B/s")
    'Off by a factor of eight: bits and bytes, or the eight GPUs of a node, are mixed up. The answer is asked in B/s.'
    """
    try:
        answer, expected = float(answer), float(expected)
        if close(-answer, expected, PREFIX):
            return "The sign is wrong."
        if answer < 0 < expected:
            return NEGATIVE
        return _factor_slip(answer, expected, unit, both_directions) or WRONG_VALUE
    except (
        ValueError,
        ZeroDivisionError,
        OverflowError,
    ):  # no ratio, or a number too large for a float
        return WRONG_VALUE


@dataclass(frozen=True)
class NumberCheck:
    """A check of one number, in ``unit``.

    expected         returns the right value; dtlib computes it when the answer comes, so it stands
    nowhere hints            pairs of a wrong value (or a function that returns it) and the hint
    that it deserves rtol             how far off an estimate may be, where three significant digits
    would ask too much both_directions  the exercise turns on per-direction bandwidth: a factor of
    two gets its hint explanation      shown after the pass

    Slips of unit, prefix, percent, sign and off-by-one get their hints without being listed, where
    the unit has them.

    >>> check = NumberCheck(lambda: 16 * 405e9 / 1e12, unit="TB", hints=((2 * 0.405, "Only the weights."),))
    >>> check(...).status, check(6.48), check(0.81)
    ('not attempted', ✓ Pass, → Hint: Only the weights.)
    """

    expected: Callable[[], Any]
    unit: str = ""
    hints: tuple[tuple[Any, str], ...] = ()
    rtol: float = 0.0
    both_directions: bool = False
    explanation: str = ""

    @property
    def reference(self) -> Any:
        return self.expected()

    @property
    def mistakes(self) -> list[tuple[Any, str]]:
        """The listed wrong answers, computed, with their hints."""
        return [(wrong() if callable(wrong) else wrong, text) for wrong, text in self.hints]

    def __call__(self, answer: Any) -> Verdict:
        if answer is ...:
            return NOT_ATTEMPTED
        return verdict_within(READING_S, self._verdict, answer)

    def _verdict(self, answer: Any) -> Verdict:
        answer = plain(answer)
        problem = not_a_number(answer)
        if problem:
            return hint(problem)
        expected = plain(self.expected())
        if _right(answer, expected, self.rtol):
            return passed(self.explanation)
        return hint(self._hint(answer, expected))

    def _hint(self, answer: int | float, expected: int | float) -> str:
        wrongs = [(plain(wrong), text) for wrong, text in self.mistakes]
        exactly = [text for wrong, text in wrongs if close(answer, wrong, 1e-9)]
        if exactly:
            return exactly[0]
        if isinstance(expected, int) and abs(answer - expected) == 1:
            return "Off by one: decide whether the first, the last or the rank itself counts."
        if isinstance(expected, float) and _two_digits(
            answer, expected
        ):  # 13 may be short for a listed 12.95, and for 13.2
            return TOO_FEW_DIGITS
        return next(
            (text for wrong, text in wrongs if _right(answer, wrong)),
            slip(answer, expected, self.unit, self.both_directions),
        )


def _right(answer: int | float, target: int | float, rtol: float = 0.0) -> bool:
    """The rule: three significant digits, or ``rtol`` where that is wider; a whole number as it is."""
    if isinstance(target, int):
        return close(
            answer, target, 1e-12 if isinstance(answer, float) else 0
        )  # 30 * 0.1 is meant to be 3
    return agrees(answer, target) or close(answer, target, rtol)
