"""Checks of a number: the right value within a tolerance, or a hint that names the slip and not the answer."""

from __future__ import annotations

import decimal
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.teaching.verdict import NOT_ATTEMPTED, Verdict, hint, passed

__all__ = ["NumberCheck", "not_a_number", "slip"]

# The fallback names no digit at all: whatever the answer is, no hint can contain it.
WRONG_VALUE = "Not this value. Write the formula down with its units, then put in the numbers one by one."
ROUNDED = 0.005  # a value rounded to three significant digits is off by this share at most


def not_a_number(answer: Any) -> str | None:
    """The hint for an ``answer`` of a wrong type, or None for a number, NumPy's scalars and 0-d arrays included."""
    if answer is None:
        return "This is None: no value arrived. print(...) shows a value but returns None; assign or return the value."
    if isinstance(answer, (bool, np.bool_)):
        return "This is a truth value (True or False), and a number is asked."
    if isinstance(answer, (str, bytes)):
        return "This is a text. Write the number without quotes, and without its unit."
    if isinstance(answer, (complex, np.complexfloating)):
        return "This is a complex number. In Python a power is written **, and j marks an imaginary number."
    if isinstance(answer, np.ndarray) and answer.ndim:
        return ("This is an array with a single element: take the element out of it." if answer.size == 1
                else "This is an array, and one number is asked.")
    if isinstance(answer, (list, tuple, set, frozenset, dict)):
        return ("This is a collection with a single element: take the element out of it, or drop a stray comma."
                if len(answer) == 1 else "This is a collection of values, and one number is asked.")
    if callable(answer):
        return "This is a function and not its result: call it, with parentheses."
    if isinstance(answer, np.ndarray) and answer.dtype.kind in "iuf":
        answer = answer.item()
    if not isinstance(answer, (numbers.Real, decimal.Decimal)):
        return f"This is of type {type(answer).__name__}, and a number is asked."
    if isinstance(answer, numbers.Integral):
        return None
    if math.isnan(answer):
        return "This is nan (not a number). Look for zero divided by zero, or infinity minus infinity."
    if math.isinf(answer):
        return "This is infinite. Look for a division by zero or an overflow."
    return None


def _number(value: Any) -> int | float:
    """``value`` as Python's own number; a whole number stays exact however large."""
    value = value.item() if isinstance(value, (np.ndarray, np.generic)) else value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _close(value: float, target: float, rtol: float) -> bool:
    return value == target or abs(value - target) <= rtol * abs(target)


def _right_to_three_digits(answer: float, expected: float) -> bool:
    return _close(answer, expected, 0.001) or f"{answer:.2e}" == f"{expected:.2e}"


def _factor_slip(ratio: float, rtol: float, unit: str, both_directions: bool) -> str | None:
    """The slip behind an answer that is ``ratio`` times the right one, in either direction."""
    times = max(ratio, 1 / ratio)
    asked = f" The answer is asked in {unit}." if unit else ""
    bytes_asked = not unit or "B" in unit or "byte" in unit
    for power in range(1, 5) if bytes_asked else ():
        if _close(times, 1.024**power, min(rtol, 0.004)):
            return f"Decimal and binary prefixes are mixed: GB counts by thousands, GiB by powers of two.{asked}"
        if _close(times, 1024.0**power, min(rtol, 0.004)):
            return f"A binary prefix (KiB, MiB, GiB) is too many or too few.{asked}"
    if _close(times, 8, rtol):
        return f"Off by a factor of eight: bits and bytes, or the eight GPUs of a node, are mixed up.{asked}"
    if _close(times, 100, rtol) and unit in ("", "%", "share"):
        return "Percent and share are mixed up: " + ("percent is asked." if unit == "%" else "a share is asked.")
    power = round(math.log10(times))
    if power and _close(times, 10.0**power, rtol):
        return f"The digits are right and the power of ten is not: look at the prefixes (kilo, mega, giga).{asked}"
    if both_directions and _close(times, 2, rtol):
        return "Off by a factor of two: one direction and the sum of both are mixed up."
    return None


def slip(answer: Any, expected: Any, unit: str = "", rtol: float = ROUNDED, both_directions: bool = False) -> str:
    """The hint for a wrong number, from how it compares with the right one.

    >>> slip(50e9, 400e9)
    'Off by a factor of eight: bits and bytes, or the eight GPUs of a node, are mixed up.'
    """
    try:
        answer, expected, rtol = float(_number(answer)), float(_number(expected)), max(rtol, ROUNDED)
        ratio = answer / expected
        if ratio < 0:
            return "The sign is wrong." if _close(-answer, expected, rtol) else WRONG_VALUE
        return _factor_slip(ratio, rtol, unit, both_directions) or WRONG_VALUE
    except (ZeroDivisionError, OverflowError):  # no ratio, or a number too large for a float
        return WRONG_VALUE


@dataclass(frozen=True)
class NumberCheck:
    """A check of one number, in ``unit``.

    expected         returns the right value; dtlib computes it when the answer comes, so it stands nowhere
    hints            pairs of a wrong value (or a function that returns it) and the hint that it deserves
    rtol             relative tolerance; unless given, three significant digits, and a whole number (an int) exactly
    both_directions  the exercise turns on per-direction bandwidth: a factor of two gets its hint
    explanation      shown after the pass

    Slips of unit, prefix, percent, sign and off-by-one get their hints without being listed.

    >>> check = NumberCheck(lambda: 16 * 405e9 / 1e12, unit="TB", hints=((2 * 0.405, "Only the weights."),))
    >>> check(...).status, check(6.48), check(0.81)
    ('not attempted', ✓ Pass, → Hint: Only the weights.)
    """

    expected: Callable[[], Any]
    unit: str = ""
    hints: tuple[tuple[Any, str], ...] = ()
    rtol: float | None = None
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
        problem = not_a_number(answer)
        if problem:
            return hint(problem)
        answer, expected = _number(answer), _number(self.expected())
        if self._is(answer, expected, self.rtol):
            return passed(self.explanation)
        for wrong, text in self.mistakes:
            if self._is(answer, _number(wrong)):
                return hint(text)
        if isinstance(expected, int) and abs(answer - expected) == 1:
            return hint("Off by one: decide whether the first, the last or the rank itself counts.")
        return hint(slip(answer, expected, self.unit, self.rtol or 0, self.both_directions))

    def _is(self, answer: float, target: float, rtol: float | None = None) -> bool:
        try:
            if rtol is None and isinstance(target, int):
                rtol = 1e-12 if isinstance(answer, float) else 0  # 30 * 0.1 is meant to be 3
            return _right_to_three_digits(answer, target) if rtol is None else _close(answer, target, rtol)
        except OverflowError:  # a whole number too large to be compared with a fraction
            return False
