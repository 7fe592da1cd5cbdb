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
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Literal, TypeVar, overload

import numpy as np

__all__ = [
    "LARGEST",
    "LARGEST_COUNT",
    "SMALLEST",
    "broadcasting",
    "choice",
    "whole_number",
    "divisible",
    "instance",
    "real_number",
    "shown",
    "store",
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


def _demand(fine: Any, name: str, wanted: str, value: Any) -> None:
    if not np.all(fine):
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
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole and isinstance(value, np.ndarray):
        whole = value.dtype.kind in "iu" and (array or not is_array)
    if not whole:
        raise TypeError(
            f"{name} must be a whole number, got {shown(value)} ({type(value).__name__})"
        )
    _demand(value >= at_least, name, f"at least {at_least}", value)
    _demand(value <= at_most, name, f"at most {at_most}", value)
    return value.astype(np.int64) if is_array else int(value)


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
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, bool
    )
    if not number and isinstance(value, np.ndarray):
        number = value.dtype.kind in "iuf" and (array or not is_array)
    if not number:
        raise TypeError(
            f"{name} must be a number{' in' + of_unit if unit else ''}, got {shown(value)} "
            f"({type(value).__name__})"
        )
    largest = f"{'±' * negative}{min(at_most, LARGEST):g}{of_unit}"
    _demand(np.abs(value) <= LARGEST, name, f"finite and at most {largest}", value)
    numbers = np.asarray(value, dtype=float)
    if not negative:
        _demand(
            numbers >= 0 if zero else numbers > 0,
            name,
            f"{'at least' if zero else 'above'} 0{of_unit}",
            value,
        )
    if not zero:
        _demand(np.abs(numbers) >= SMALLEST, name, f"at least {SMALLEST:g}{of_unit}", value)
    _demand(numbers <= at_most, name, f"at most {largest}", value)
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
            f"{'an' if one.__name__[0] in 'AEIOU' else 'a'} {one.__name__}" for one in kinds
        )
        raise TypeError(
            f"{name} must be {wanted}{', such as ' * bool(such_as)}{such_as}, got {shown(value)}"
        )
    return value


def store(frozen: Any, **values: Any) -> None:
    """Put checked values into the fields of a frozen dataclass; for its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)


def broadcasting(function: Function) -> Function:
    """A closed form of several arrays: refuses shapes that do not broadcast, by name.

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
        given = signature.bind(*args, **kwargs).arguments
        shapes = {
            name: value.shape for name, value in given.items() if isinstance(value, np.ndarray)
        }
        try:
            np.broadcast_shapes(*shapes.values())
        except ValueError:
            text = " and ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise ValueError(f"the shapes of {text} do not broadcast") from None
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]
