"""Units: decimal and binary bytes, bits to bytes, and how a quantity is printed.

GB is 1e9 bytes, GiB is 2**30. Rates are always decimal: 400 Gb/s is 400e9 bits, so 50e9 bytes, a second.
"""

from __future__ import annotations

from dtlib.arguments import quantity

__all__ = ["GB", "GiB", "KB", "KiB", "MB", "MiB", "TB", "TiB", "binary", "bytes_per_s", "count_text", "duration", "si"]

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40


def bytes_per_s(gigabits_per_s: float) -> float:
    """Bytes a second of a rate printed in Gb/s (1e9 bits a second).

    >>> bytes_per_s(400)
    50000000000.0
    """
    return quantity("gigabits_per_s", gigabits_per_s, unit="Gb/s") * 1e9 / 8


def _scaled(value: float, digits: int, steps: tuple[tuple[float, str], ...]) -> tuple[str, str]:
    """``value`` in the largest step it reaches after rounding to ``digits`` significant digits."""
    rounded = float(f"{value:.{digits - 1}e}")
    size, prefix = next(((s, p) for s, p in steps if max(abs(rounded), abs(value)) >= s), steps[-1])
    shown = value / size
    whole = len(str(int(abs(float(f"{shown:.{digits - 1}e}")))))
    return f"{shown:,.{max(0, digits - whole)}f}", prefix


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def si(value: float, unit: str = "B", digits: int = 3) -> str:
    """``value`` with a decimal prefix, to ``digits`` significant digits.

    >>> si(6.48e12), si(50e9, "B/s"), si(0), si(999.9e9)
    ('6.48 TB', '50 GB/s', '0 B', '1 TB')
    """
    value = quantity("value", value, negative=True)
    text, prefix = _scaled(value, digits, ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")))
    return f"{_trimmed(text)} {prefix}{unit}"


def binary(value: float, digits: int = 3) -> str:
    """``value`` bytes with a binary prefix.

    >>> binary(2**30), binary(80e9)
    ('1 GiB', '74.5 GiB')
    """
    value = quantity("value", value, negative=True)
    text, prefix = _scaled(value, digits, ((2**50, "Pi"), (2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"), (1, "")))
    return f"{_trimmed(text)} {prefix}B"


def duration(seconds: float, digits: int = 3) -> str:
    """A time with the unit a person would say.

    >>> duration(32.4), duration(0.00025), duration(5400), duration(0)
    ('32.4 s', '250 µs', '1.5 h', '0 s')
    """
    seconds = quantity("seconds", seconds, unit="s", negative=True)
    if seconds == 0:
        return "0 s"
    steps = ((365.25 * 86400, "years"), (2 * 86400, "days"), (3600, "h"), (60, "min"),
             (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    rounded = float(f"{seconds:.{digits - 1}e}")
    size, unit = next(((s, u) for s, u in steps if max(abs(rounded), abs(seconds)) >= s), steps[-1])
    size = 86400 if unit == "days" else size
    text, _ = _scaled(seconds / size, digits, ((1, ""),))
    return f"{_trimmed(text)} {unit}"


def count_text(value: float) -> str:
    """A count with thousands separators.

    >>> count_text(16384)
    '16,384'
    """
    return f"{value:,.0f}"
