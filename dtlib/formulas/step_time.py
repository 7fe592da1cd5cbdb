"""The time of a training step: computing, then the wire.

Nothing overlaps here: a step computes, then communicates. Overlap is the subject of a later
chapter.
"""

from __future__ import annotations

from typing import Any

from dtlib.arguments import broadcasting, real_number, whole_number
from dtlib.formulas.architecture import six_n_flops

__all__ = ["compute_time_s", "wire_share"]


@broadcasting
def compute_time_s(parameters: Any, tokens: Any, gpus: Any, achieved_FLOPs: Any) -> Any:
    """Seconds of computing in a step: 6 N D FLOPs, shared evenly, at ``achieved_FLOPs`` (FLOP/s)
    per GPU.

    >>> compute_time_s(405e9, 2**24, gpus=16_384, achieved_FLOPs=400e12)
    6.2208
    """
    rate = real_number("achieved_FLOPs", achieved_FLOPs, unit="FLOP/s", zero=False)
    return six_n_flops(parameters, tokens) / whole_number("gpus", gpus, array=True) / rate


@broadcasting
def wire_share(compute_s: Any, wire_s: Any) -> Any:
    """The share of the step spent on the wire when nothing overlaps: wire / (compute + wire).

    >>> round(wire_share(6.2208, 32.4), 4)
    0.8389
    """
    wire_s = real_number("wire_s", wire_s, unit="s")
    return wire_s / (real_number("compute_s", compute_s, unit="s", zero=False) + wire_s)
