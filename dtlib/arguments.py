"""Checks of arguments: every public function refuses bad input before any work.

Each check returns the value in the type the caller computes with, and raises an error that names
the parameter, shows the value and says what would be accepted. A wrong type is a TypeError, a wrong
value a ValueError. Arrays are accepted where ``array=True`` says that the caller is a closed form.

Numbers have bounds, so that nothing computed from them overflows: a count is at most
``LARGEST_COUNT`` = 2**53, up to which floats count one by one, and a quantity at most ``LARGEST`` =
1e30 (what must not be zero is at least ``SMALLEST`` = 1e-30).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Literal, TypeVar, overload

import numpy as np

__all__ = [
    "LARGEST",
    "LARGEST_COUNT",
    "SMALLEST",
    "broadcastable",
    "broadcasting",
    "choice",
    "divisible",
    "instance",
    "plain",
    "real_number",
    "shown",
    "store",
    "whole_number",
]

LARGEST_COUNT = 2**53
LARGEST, SMALLEST = 1e30, 1e-30

Kind = TypeVar("Kind")
Function = TypeVar("Function", bound=Callable[..., Any])


def shown(value: Any) -> str:
    """``repr(value)`` as far as an error message has room for it."""
    try:
        text = repr(value)
    except Exception:  # such as an int of more than 4,300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def plain(value: Any) -> Any:
    """An array as it is, and anything without a dimension as a Python number.

    >>> plain(np.float64(0.5)), plain(np.array(3)), plain(np.array([1, 2]))
    (0.5, 3, array([1, 2]))
    """
    return value if np.ndim(value) else np.asarray(value).item()


def _refuse_unless(fine: Any, name: str, wanted: str, value: Any) -> None:
    if not (fine if isinstance(fine, bool) else np.all(fine)):
        raise ValueError(f"{name} must be {wanted}, got {shown(value)}")


@overload
def whole_number(
    name: str, value: Any, *, at_least: int = ..., at_most: int = ..., array: Literal[False] = ...
) -> int: ...
@overload
def whole_number(
    name: str, value: Any, *, at_least: int = ..., at_most: int = ..., array: Literal[True]
) -> Any: ...
def whole_number(
    name: str, value: Any, *, at_least: int = 1, at_most: int = LARGEST_COUNT, array: bool = False
) -> Any:
    """A whole number of things, from 1 to 2**53 unless said otherwise: an ``int`` (or an int64
    array if ``array``).

    >>> whole_number("ranks", 8)
    8
    >>> whole_number("ranks", 2.5)
    Traceback (most recent call last):
    ...
    TypeError: ranks must be a whole number, got 2.5 (float)
    """
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    if isinstance(value, np.ndarray):
        whole = value.dtype.kind in "iu" and (array or not is_array)
    else:  # numpy counts its timedelta64 among the integers
        whole = isinstance(value, (int, np.integer)) and not isinstance(
            value, (bool, np.timedelta64)
        )
    if not whole:
        raise TypeError(
            f"{name} must be a whole number, got {shown(value)} ({type(value).__name__})"
        )
    number = value if is_array else int(value)
    _refuse_unless(number >= at_least, name, f"at least {at_least}", value)
    _refuse_unless(number <= at_most, name, f"at most {at_most}", value)
    return number.astype(np.int64) if is_array else number


def _floats(value: Any) -> Any:
    """``value`` as floats of 64 bits, infinite where it is too large for one."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # an int of more than 308 digits
            return math.inf
    with np.errstate(all="ignore"):  # a long double may be too large, too
        return np.asarray(value, dtype=float) if np.ndim(value) else float(value)


def real_number(
    name: str,
    value: Any,
    *,
    unit: str = "",
    zero: bool = True,
    negative: bool = False,
    at_most: float = LARGEST,
    array: bool = True,
) -> Any:
    """A real number (or array of them) in ``unit``, at most 1e30 in size: a ``float``, or a float
    array.

    ``zero`` and ``negative`` say whether those are accepted. Without zero, 1e-30 is the smallest
    number.

    >>> real_number("bandwidth_Bps", 50e9, unit="B/s", zero=False)
    50000000000.0
    >>> real_number("bandwidth_Bps", 0, unit="B/s", zero=False)
    Traceback (most recent call last):
    ...
    ValueError: bandwidth_Bps must be above 0 B/s, got 0
    """
    of_unit = f" {unit}" if unit else ""
    if isinstance(value, np.ndarray):
        is_number = value.dtype.kind in "iuf" and (array or value.ndim == 0)
    else:  # numpy counts its timedelta64 among the integers
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
            value, (bool, np.timedelta64)
        )
    if not is_number:
        raise TypeError(
            f"{name} must be a number{' in' + of_unit if unit else ''}, got {shown(value)} "
            f"({type(value).__name__})"
        )
    numbers = _floats(value)
    largest = f"{'±' * negative}{min(at_most, LARGEST):g}{of_unit}"
    _refuse_unless(abs(numbers) <= LARGEST, name, f"finite and at most {largest}", value)
    if not negative:
        least = f"{'at least' if zero else 'above'} 0{of_unit}"
        _refuse_unless(numbers >= 0 if zero else numbers > 0, name, least, value)
    if not zero:
        least = f"at least {SMALLEST:g}{of_unit}"
        _refuse_unless(abs(numbers) >= SMALLEST, name, least, value)
    _refuse_unless(numbers <= at_most, name, f"at most {largest}", value)
    return numbers


def choice(name: str, value: Any, options: Iterable[Any]) -> Any:
    """One of ``options``, compared with its type: ``True`` is not 1, but numpy's 1 is.

    >>> choice("stage", np.int64(1), (0, 1, 2, 3))
    1
    >>> choice("stage", 4, (0, 1, 2, 3))
    Traceback (most recent call last):
    ...
    ValueError: stage must be one of 0, 1, 2, 3, got 4
    """
    options = tuple(options)
    scalar = isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biufU"
    given = plain(value) if scalar else value
    for option in options:
        if type(option) is type(given) and option == given:
            return option
    raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}")


def divisible(name: str, value: int, by_name: str, by: int) -> int:
    """``value // by``, or an error that names both numbers.

    >>> divisible("heads", 52, "tp", 8)
    Traceback (most recent call last):
    ...
    ValueError: heads=52 is not divisible by tp=8: 52 / 8 leaves 4
    """
    if value % by:
        raise ValueError(
            f"{name}={value} is not divisible by {by_name}={by}: {value} / {by} leaves {value % by}"
        )
    return value // by


def instance(
    name: str, value: Any, kind: type[Kind], *others: type[Any], such_as: str = ""
) -> Kind:
    """``value``, which must be an object of one of the kinds; ``such_as`` shows how to make one.

    >>> instance("schedule", None, Exception, such_as="make('all_reduce', 'ring', 8)")
    Traceback (most recent call last):
    ...
    TypeError: schedule must be an Exception, such as make('all_reduce', 'ring', 8), got None
    """
    kinds = (kind, *others)
    if not isinstance(value, kinds):
        wanted = " or ".join(
            f"{'an' if one.__name__[0] in 'AEIOUaeiou' else 'a'} {one.__name__}" for one in kinds
        )
        raise TypeError(
            f"{name} must be {wanted}{', such as ' * bool(such_as)}{such_as}, got {shown(value)}"
        )
    return value


def store(frozen: Any, **values: Any) -> None:
    """Put checked values into the fields of a frozen dataclass; for its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)


def broadcastable(**values: Any) -> None:
    """Refuse values whose shapes do not broadcast, by name.

    >>> broadcastable(payloads=np.ones(3), ranks=np.ones(2))
    Traceback (most recent call last):
    ...
    ValueError: the shapes of payloads (3,) and ranks (2,) do not broadcast
    """
    shapes = {name: np.shape(value) for name, value in values.items() if np.ndim(value)}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        text = " and ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"the shapes of {text} do not broadcast") from None


def broadcasting(function: Function) -> Function:
    """A closed form of arrays: refuses shapes that do not broadcast, by name.

    It also gives the same results whatever ``np.seterr`` was told about underflow: what is too
    small for a float is 0.

    >>> @broadcasting
    ... def product(payloads, ranks):
    ...     return payloads * ranks
    >>> product(np.ones(3), np.ones(2))
    Traceback (most recent call last):
    ...
    ValueError: the shapes of payloads (3,) and ranks (2,) do not broadcast
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        arrays = [one for one in (*args, *kwargs.values()) if isinstance(one, np.ndarray)]
        if len(arrays) > 1:
            given = signature.bind(*args, **kwargs).arguments
            broadcastable(
                **{name: one for name, one in given.items() if isinstance(one, np.ndarray)}
            )
        with np.errstate(under="ignore"):
            return function(*args, **kwargs)

    return checked  # type: ignore[return-value]
