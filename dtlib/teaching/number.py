"""Checks of a number: right by the rule of ``dtlib.tolerance``, or a hint that names the mistake
and not the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.teaching.answers import plain
from dtlib.teaching.verdict import NOT_ATTEMPTED, Verdict, hint, passed
from dtlib.tolerance import is_right

__all__ = ["NumberCheck", "not_a_number", "wrong_number"]

# The fallback names no digit at all: whatever the answer is, no hint can contain it.
WRONG_VALUE = (
    "Not this value. Write the formula down with its units, then put in the numbers one by one."
)
TOO_FEW_DIGITS = "Close: give three significant digits."
OFF_BY_ONE = "Off by one: decide whether the first, the last or the rank itself counts."
NEGATIVE = (
    "This is negative, and the answer is not: look at the order of a difference, or at a sign."
)
# How exactly a factor of 1.024 must be met: a rounded number lies near it by chance.
PREFIX = 1e-3


def not_a_number(answer: Any) -> str | None:
    """The hint for an ``answer`` (made ``plain``) that is no finite number, or None."""
    if answer is None:
        return (
            "This is None: no value arrived. print(...) shows a value but returns None; assign "
            "or return the value."
        )
    if isinstance(answer, bool):
        return "This is a truth value (True or False), and a number is asked."
    if isinstance(answer, str):
        return "This is a text. Write the number without quotes, and without its unit."
    if isinstance(answer, (list, tuple, set, frozenset, dict, np.ndarray)):
        return "This is a collection of values, and one number is asked: take it out."
    if callable(answer):
        return "This is a function and not its result: call it, with parentheses."
    if not isinstance(answer, (int, float)):
        return f"This is of type {type(answer).__name__}, and a number is asked."
    if isinstance(answer, float) and not math.isfinite(answer):
        return f"This is {answer}. Look for a division by zero, or an overflow."
    return None


def _factor(answer: float, expected: float, unit: str, both_directions: bool) -> str | None:
    """The hint for an answer that is the right one times or over a telling factor."""

    def off_by(factor: float) -> bool:
        return is_right(answer, expected * factor) or is_right(answer, expected / factor)

    asked = f" The answer is asked in {unit}."
    sizes = "B" in unit or "byte" in unit  # only these have binary prefixes, and bits
    times = max(answer / expected, expected / answer)
    if sizes and any(is_right(times, 1.024**power, PREFIX) for power in range(1, 5)):
        return (
            "Decimal and binary prefixes are mixed: GB counts by thousands, GiB by powers of "
            f"two.{asked}"
        )
    if sizes and any(is_right(times, 1024.0**power, PREFIX) for power in range(1, 5)):
        return f"A binary prefix (KiB, MiB, GiB) is too many or too few.{asked}"
    if sizes and off_by(8):
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
            f": look at the prefixes (kilo, mega, giga).{asked}" if sizes else f".{asked}"
        )
    if both_directions and off_by(2):
        return "Off by a factor of two: one direction and the sum of both are mixed up."
    return None


def _has_two_digits(answer: float, expected: float) -> bool:
    """Whether ``answer`` is ``expected`` rounded to two significant digits, or cut off there."""
    if not expected:
        return False
    unit = 10.0 ** (math.floor(math.log10(abs(expected))) - 1)
    return any(
        is_right(answer, two * unit, 1e-9)
        for two in (float(round(expected / unit)), float(math.trunc(expected / unit)))
    )


def wrong_number(
    answer: float, expected: float, unit: str = "", both_directions: bool = False
) -> str:
    """The hint for a wrong number that no exercise listed, from how it compares with the right one;
    ``unit`` says which mistakes can happen.

    >>> wrong_number(31.9, 0.319, "share")
    'Percent and share are mixed up: a share is asked.'
    """
    if isinstance(expected, int) and abs(answer - expected) == 1:
        return OFF_BY_ONE
    try:
        answer, expected = float(answer), float(expected)
        if is_right(-answer, expected):
            return "The sign is wrong."
        if answer < 0 < expected:
            return NEGATIVE
        return _factor(answer, expected, unit, both_directions) or WRONG_VALUE
    except (ValueError, ZeroDivisionError, OverflowError):  # no ratio, or too large for a float
        return WRONG_VALUE


@dataclass(frozen=True)
class NumberCheck:
    """A check of one number, in ``unit``; within 0.5%, a count (a Python int) exactly.

    - ``expected`` returns the right value: dtlib computes it when the answer comes.
    - ``hints`` are pairs of a wrong value, or a function that returns it, and a sentence for it.
    - ``both_directions``: bandwidth is each way, and a factor of two gets its hint.
    - ``explanation`` is shown after the pass.

    Mistakes of unit, prefix, percent, sign and off-by-one get their hints without being listed,
    where the unit has them.

    >>> weights = (2 * 0.405, "Only the weights.")
    >>> check = NumberCheck(lambda: 16 * 405e9 / 1e12, unit="TB", hints=(weights,))
    >>> check(...).status, check(6.48), check(0.81)
    ('not attempted', Pass, Hint: Only the weights.)
    """

    expected: Callable[[], Any]
    unit: str = ""
    hints: tuple[tuple[Any, str], ...] = ()
    both_directions: bool = False
    explanation: str = ""

    @property
    def reference(self) -> Any:
        return self.expected()

    def wrong_answers(self) -> list[tuple[Any, str]]:
        """The hints with their wrong values computed."""
        return [(wrong() if callable(wrong) else wrong, text) for wrong, text in self.hints]

    def __call__(self, answer: Any) -> Verdict:
        if answer is ...:
            return NOT_ATTEMPTED
        answer, expected = plain(answer), plain(self.expected())
        problem = not_a_number(answer)
        if problem:
            return hint(problem)
        if is_right(answer, expected):
            return passed(self.explanation)
        return hint(self._hint(answer, expected))

    def _hint(self, answer: int | float, expected: int | float) -> str:
        wrongs = [(plain(wrong), text) for wrong, text in self.wrong_answers()]
        near = [(wrong, text) for wrong, text in wrongs if is_right(answer, wrong)]
        # 13 may be short for 13.2, the answer, and for a listed 12.95: the first is likelier.
        listed = any(is_right(answer, wrong, 1e-9) for wrong, _ in near)
        if isinstance(expected, float) and not listed and _has_two_digits(answer, expected):
            return TOO_FEW_DIGITS
        if near:
            return min(near, key=lambda entry: abs(entry[0] - answer))[1]
        return wrong_number(answer, expected, self.unit, self.both_directions)
