"""Checks of arguments: every public function refuses bad input before any work.

Each check returns the value in the type the caller computes with, and raises an error that names the
parameter, shows the value and says what would be accepted. A wrong type is a TypeError, a wrong value
a ValueError. Arrays are accepted where ``array=True`` says that the caller is a closed form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

import numpy as np

__all__ = ["choice", "count", "divisible", "quantity"]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@overload
def count(name: str, value: Any, *, at_least: int = ..., at_most: int | None = ..., array: Literal[False] = ...) -> int: ...
@overload
def count(name: str, value: Any, *, at_least: int = ..., at_most: int | None = ..., array: Literal[True]) -> Any: ...
def count(name: str, value: Any, *, at_least: int = 1, at_most: int | None = None, array: bool = False) -> Any:
    """A whole number of things, as an ``int`` (or an int64 array if ``array``).

    >>> count("ranks", 8)
    8
    >>> count("ranks", 2.5)
    Traceback (most recent call last):
    ...
    TypeError: ranks must be a whole number, got 2.5 (float)
    """
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole and isinstance(value, np.ndarray):
        whole = value.dtype.kind in "iu" and (array or not is_array)
    if not whole:
        raise TypeError(f"{name} must be a whole number, got {_shown(value)} ({type(value).__name__})")
    numbers = np.asarray(value)
    if np.any(numbers < at_least):
        raise ValueError(f"{name} must be at least {at_least}, got {_shown(value)}")
    if at_most is not None and np.any(numbers > at_most):
        raise ValueError(f"{name} must be at most {at_most}, got {_shown(value)}")
    return numbers.astype(np.int64) if is_array else int(value)


def quantity(name: str, value: Any, *, unit: str = "", zero: bool = True, negative: bool = False,
             at_most: float | None = None, array: bool = True) -> Any:
    """A finite real number (or array of them) in ``unit``: a ``float``, or a float array.

    ``zero`` and ``negative`` say whether those are accepted.

    >>> quantity("bandwidth_Bps", 50e9, unit="B/s", zero=False)
    50000000000.0
    >>> quantity("bandwidth_Bps", 0, unit="B/s", zero=False)
    Traceback (most recent call last):
    ...
    ValueError: bandwidth_Bps must be above 0 B/s, got 0
    """
    of_unit = f" {unit}" if unit else ""
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    number = isinstance(value, (int, float, np.integer, np.floating, np.ndarray)) and not isinstance(value, bool)
    if not number or np.asarray(value).dtype.kind not in "iufO" or (is_array and not array):
        raise TypeError(f"{name} must be a number{' in' + of_unit if unit else ''}, got {_shown(value)} ({type(value).__name__})")
    numbers = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(numbers)):
        raise ValueError(f"{name} must be finite, got {_shown(value)}")
    if not negative and np.any(numbers < 0):
        raise ValueError(f"{name} must be at least 0{of_unit}, got {_shown(value)}" if zero
                         else f"{name} must be above 0{of_unit}, got {_shown(value)}")
    if not zero and np.any(numbers == 0):
        raise ValueError(f"{name} must be above 0{of_unit}, got {_shown(value)}")
    if at_most is not None and np.any(numbers > at_most):
        raise ValueError(f"{name} must be at most {at_most:g}{of_unit}, got {_shown(value)}")
    return numbers if is_array else float(value)


def choice(name: str, value: Any, options: Iterable[Any]) -> Any:
    """One of ``options``, compared with its type (so ``True`` is not 1).

    >>> choice("stage", 4, (0, 1, 2, 3))
    Traceback (most recent call last):
    ...
    ValueError: stage must be one of 0, 1, 2, 3, got 4
    """
    options = tuple(options)
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {_shown(value)}")


def divisible(name: str, value: int, by_name: str, by: int) -> int:
    """``value // by``, or an error that names both numbers.

    >>> divisible("heads", 52, "tp", 8)
    Traceback (most recent call last):
    ...
    ValueError: heads=52 is not divisible by tp=8: 52 / 8 leaves 4
    """
    if value % by:
        raise ValueError(f"{name}={value} is not divisible by {by_name}={by}: {value} / {by} leaves {value % by}")
    return value // by
