"""Reads an answer as values of Python's own types, so that NumPy's numbers, fractions, decimals and
generators count as what they hold.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

__all__ = ["MOST_ITEMS", "Endless", "plain"]

MOST_ITEMS = 10_000  # no exercise asks a generator for more
_PLAIN = frozenset({bool, int, float, str, type(None)})


class Endless(Exception):
    """An iterator gave more than ``MOST_ITEMS``."""


def plain(value: Any) -> Any:
    """``value`` in Python's own types, the items of a collection too, an iterator as the list of
    its items; an array with axes, and what is of no such type, stays as it is. Raises Endless.

    >>> plain((np.float32(0.5), np.str_("ring"), np.array(3), range(2), map(abs, [-1])))
    (0.5, 'ring', 3, range(0, 2), [1])
    """
    if type(value) in _PLAIN or isinstance(value, np.timedelta64):  # NumPy's is an integer to it
        return value
    if isinstance(value, np.ndarray) and not value.ndim:
        return plain(value.item())
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, (numbers.Real, Decimal)):
        try:
            return float(value)
        except OverflowError:  # a fraction
            return math.inf if value > 0 else -math.inf
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):  # a named tuple keeps its names
        return tuple.__new__(type(value), map(plain, value))
    if isinstance(value, (set, frozenset)):
        return type(value)(map(plain, value))
    if isinstance(value, Iterator):
        items = list(itertools.islice(value, MOST_ITEMS + 1))
        if len(items) > MOST_ITEMS:
            raise Endless
        return plain(items)
    return value
