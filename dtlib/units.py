"""Units: decimal and binary bytes, bits to bytes, and how a quantity is printed.

GB is 1e9 bytes, GiB is 2**30. Rates are always decimal: 400 Gb/s is 400e9 bits, so 50e9 bytes, a
second.
"""

from __future__ import annotations

import math

from dtlib.arguments import real_number, whole_number

__all__ = [
    "GB",
    "GiB",
    "KB",
    "KiB",
    "MB",
    "MiB",
    "TB",
    "TiB",
    "binary",
    "bytes_per_s",
    "count_text",
    "duration",
    "si",
]

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40


def bytes_per_s(gigabits_per_s: float) -> float:
    """Bytes a second of a rate printed in Gb/s (1e9 bits a second).

    >>> bytes_per_s(400)
    50000000000.0
    """
    return real_number("gigabits_per_s", gigabits_per_s, unit="Gb/s") * 1e9 / 8


# A unit: its size, its name, and the number of it at which the next one takes over.
Unit = tuple[float, str, float]


def _prefixed(base: int, prefixes: tuple[str, ...]) -> tuple[Unit, ...]:
    last = len(prefixes) - 1
    return tuple(
        (base**power, prefix, base if power < last else math.inf)
        for power, prefix in enumerate(prefixes)
    )


_DECIMAL = _prefixed(1000, ("", "k", "M", "G", "T", "P", "E"))
_BINARY = _prefixed(1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi"))
_TIMES = (
    (1e-9, "ns", 1000),
    (1e-6, "µs", 1000),
    (1e-3, "ms", 1000),
    (1, "s", 60),
    (60, "min", 60),
    (3600, "h", 48),
    (86400, "days", 365.25),
    (365.25 * 86400, "years", math.inf),
)


def _rounded(value: float, digits: int) -> str:
    """``value`` to ``digits`` significant digits, none of which before the point is lost."""
    if abs(value) < 1:
        return f"{value + 0.0:.{digits}g}"  # adding zero makes -0 a 0
    text = f"{value:,.{max(0, digits - len(str(int(abs(value)))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, digits: int, units: tuple[Unit, ...]) -> str:
    """``value`` in the largest unit it reaches once it is rounded."""
    whole_number("digits", digits, at_most=15)
    texts = ((_rounded(value / size, digits), unit, until) for size, unit, until in units)
    return next(
        f"{text} {unit}" for text, unit, until in texts if abs(float(text.replace(",", ""))) < until
    )


def si(value: float, unit: str = "B", digits: int = 3) -> str:
    """``value`` with a decimal prefix, to ``digits`` (1 to 15) significant digits; below 0.0001 as
    a power of ten.

    >>> si(6.48e12), si(50e9, "B/s"), si(0), si(999.9e9)
    ('6.48 TB', '50 GB/s', '0 B', '1 TB')
    """
    return _scaled(real_number("value", value, negative=True, array=False), digits, _DECIMAL) + unit


def binary(value: float, digits: int = 3) -> str:
    """``value`` bytes with a binary prefix.

    >>> binary(2**30), binary(80e9)
    ('1 GiB', '74.5 GiB')
    """
    return _scaled(real_number("value", value, negative=True, array=False), digits, _BINARY) + "B"


def duration(seconds: float, digits: int = 3) -> str:
    """A time with the unit a person would say.

    >>> duration(32.4), duration(0.00025), duration(5400), duration(0)
    ('32.4 s', '250 µs', '1.5 h', '0 s')
    """
    seconds = real_number("seconds", seconds, unit="s", negative=True, array=False)
    return _scaled(seconds, digits, _TIMES) if seconds else "0 s"


def count_text(value: float) -> str:
    """A count, rounded to a whole number, with thousands separators.

    >>> count_text(16384)
    '16,384'
    """
    return f"{round(real_number('value', value, negative=True, array=False)):,}"
