"""When a number counts as right: one rule for predictions and exercises."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["TOLERANCE", "is_right", "tolerance_of"]

# Half a percent: what three significant digits, rounded, always keep. Two digits may be off by 5%,
# and the closest wrong idea of the course (2S for 2(K - 1)/K S on 128 ranks) is off by 0.8%: a
# wider tolerance would call it right.
TOLERANCE = 0.005


def tolerance_of(right: Any) -> float:
    """How far off an answer may be, as a share of ``right``: nothing for a count, a Python int."""
    return 0.0 if isinstance(right, (int, np.integer)) else TOLERANCE


def is_right(answer: float, right: float, tolerance: float | None = None) -> bool:
    """Whether ``answer`` counts as ``right``: a count exactly, any other number within TOLERANCE.

    ``tolerance`` is given by what compares numbers that nobody rounded. A count computed in floats,
    such as ``30 * 0.1`` for 3, is exact.

    >>> is_right(12.6, 12.557), is_right(12.7, 12.557), is_right(13, 12.557), is_right(82, 81)
    (True, False, False, False)
    """
    if isinstance(right, (int, np.integer)):
        tolerance = 1e-12 if isinstance(answer, float) else 0.0
    elif tolerance is None:
        tolerance = TOLERANCE
    try:
        return bool(answer == right or abs(answer - right) <= tolerance * abs(right))
    except OverflowError:  # a whole number too large to be compared with a fraction
        return False
