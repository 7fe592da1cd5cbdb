"""Reads an answer: as values of Python's own types, and in limited time.

An answer may be of any class, and a class may say of itself that it equals everything, or never
come to an end of saying what it is. So nothing is compared before ``plain`` made Python's own
values of it, and all of it, from the first look at the answer to the hint, runs in
``verdict_within``.
"""

from __future__ import annotations

import decimal
import itertools
import math
import numbers
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

import numpy as np

from dtlib.deadline import call_within
from dtlib.teaching.verdict import Verdict, hint

__all__ = ["MOST_ITEMS", "Endless", "plain", "verdict_within"]

MOST_ITEMS = 10_000  # no exercise asks a generator for more
_OWN = frozenset({bool, int, float, str, type(None)})


class Endless(Exception):
    """An iterator gave more than ``MOST_ITEMS``."""


@singledispatch
def plain(value: Any) -> Any:
    """``value`` in Python's own types, the items of a collection too; what is of no such type stays
    as it is.

    NumPy's scalars and arrays without an axis become the Python number or text that they hold,
    fractions and decimals floats, an iterator the list of its items. It does not ask a subclass of
    a number, a text or a collection what it claims to be.

    >>> plain((np.float32(0.5), np.str_("ring"), np.array(3), range(2), map(abs, [-1])))
    (0.5, 'ring', 3, range(0, 2), [1])
    """
    return value


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a fraction
        return math.inf if value > 0 else -math.inf


plain.register(bool, bool)  # a subclass of int
plain.register(np.bool_, bool)
plain.register(str, str.__str__)
plain.register(int, int.__int__)
plain.register(float, float.__float__)
plain.register(numbers.Integral, int)
plain.register(numbers.Real, _float)
plain.register(decimal.Decimal, _float)
plain.register(numbers.Complex, complex)
plain.register(np.timedelta64, lambda value: value)  # NumPy counts it among the integers


@plain.register
def _array(array: np.ndarray) -> Any:
    array = np.asarray(array)
    return array if array.ndim or array.dtype.kind not in "biufcUO" else plain(array.item())


@plain.register
def _list(values: list) -> list:
    return [value if type(value) in _OWN else plain(value) for value in list.__iter__(values)]


@plain.register
def _tuple(values: tuple) -> tuple:
    return tuple.__new__(
        type(values), map(plain, tuple.__iter__(values))
    )  # a named tuple keeps its names


@plain.register
def _dict(values: dict) -> dict:
    return {plain(key): plain(value) for key, value in dict.items(values)}


@plain.register
def _set(values: set) -> set:
    return set(map(plain, set.__iter__(values)))


@plain.register
def _frozenset(values: frozenset) -> frozenset:
    return frozenset(map(plain, frozenset.__iter__(values)))


@plain.register
def _iterator(values: Iterator) -> list:
    items = list(itertools.islice(values, MOST_ITEMS + 1))
    if len(items) > MOST_ITEMS:
        raise Endless
    return plain(items)


def verdict_within(seconds: float, check: Callable[..., Verdict], *arguments: Any) -> Verdict:
    """The verdict that ``check(*arguments)`` returns, or a hint if it raises or runs longer than
    ``seconds``.
    """
    outcome = call_within(seconds, check, *arguments)
    if outcome.timed_out:
        return hint(
            "This answer could not be read to its end and was stopped. Does every loop come to its "
            "end?"
        )
    if outcome.error is not None:
        return hint(
            f"This answer could not be checked ({type(outcome.error).__name__}). Is it of the kind "
            "that is asked?"
        )
    return outcome.value
