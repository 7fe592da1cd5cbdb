"""How much of a chip a training run uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtlib.arguments import broadcasting, real_number, shown
from dtlib.facts.fact import Fact

__all__ = ["mfu"]


@broadcasting
def mfu(achieved_FLOPs: Any, peak_FLOPs: Any) -> Any:
    """Model FLOPs utilization: model FLOP/s achieved over the dense peak, a share of 1.

    Model FLOPs exclude recompute. Both may be numbers, arrays or a :class:`Fact`; a sparse peak is
    refused, since no training run does sparse arithmetic, and so is a share above 1.

    >>> round(mfu(420e12, 989.5e12), 4)
    0.4245
    """
    achieved, peak = (
        real_number(
            name, value.dense_FLOPs if isinstance(value, Fact) else value, unit="FLOP/s", zero=False
        )
        for name, value in (("achieved_FLOPs", achieved_FLOPs), ("peak_FLOPs", peak_FLOPs))
    )
    if np.any(achieved > peak):
        raise ValueError(
            f"peak_FLOPs must be at least achieved_FLOPs, got {shown(peak_FLOPs)} for "
            f"{shown(achieved_FLOPs)}"
        )
    return achieved / peak
