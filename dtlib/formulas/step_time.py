"""The time of a training step: computing, then the wire; and what its ranks spend waiting.

Nothing overlaps here: a step computes, then communicates. Overlap is the subject of a later chapter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtlib.arguments import choice, count, quantity
from dtlib.formulas import barrier
from dtlib.formulas.architecture import six_n_flops

__all__ = ["JITTERS", "compute_time_s", "jitter", "waiting_s", "waiting_share", "wire_share"]

JITTERS = ("normal", "lognormal", "exponential", "uniform")


def compute_time_s(parameters: Any, tokens: Any, gpus: Any, achieved_FLOPs: Any) -> Any:
    """Seconds of computing in a step: 6 N D FLOPs, shared evenly, at ``achieved_FLOPs`` (FLOP/s) per GPU.

    >>> compute_time_s(405e9, 2**24, gpus=16_384, achieved_FLOPs=400e12)
    6.2208
    """
    rate = quantity("achieved_FLOPs", achieved_FLOPs, unit="FLOP/s", zero=False)
    return six_n_flops(parameters, tokens) / count("gpus", gpus, array=True) / rate


def wire_share(compute_s: Any, wire_s: Any) -> Any:
    """The share of the step spent on the wire when nothing overlaps: wire / (compute + wire).

    >>> round(wire_share(6.2208, 32.4), 4)
    0.8389
    """
    wire_s = quantity("wire_s", wire_s, unit="s")
    return wire_s / (quantity("compute_s", compute_s, unit="s", zero=False) + wire_s)


def waiting_s(times_s: Any) -> np.ndarray:
    """Seconds that each rank waits for the slowest; ranks are the last axis of ``times_s``.

    >>> waiting_s([10.0, 10.0, 11.0])
    array([1., 1., 0.])
    """
    return np.expand_dims(barrier.step_time_s(times_s), -1) - np.asarray(times_s, dtype=float)


def waiting_share(times_s: Any) -> Any:
    """The share of all ranks' time that is spent waiting: 1 - mean / maximum.

    >>> round(waiting_share([10.0, 10.0, 10.0, 12.5]), 3)
    0.15
    """
    share = np.mean(waiting_s(times_s), axis=-1) / quantity("step time", barrier.step_time_s(times_s), unit="s", zero=False)
    return share if np.ndim(share) else float(share)


def jitter(kind: str, mean_s: float, std_s: float) -> barrier.Distribution:
    """One rank's step time, with this mean and standard deviation in seconds; ``kind`` is one of JITTERS.

    A uniform variable of standard deviation s spans 2 sqrt(3) s.

    >>> jitter("uniform", 10.0, 0.2).cdf(10.0)
    0.5
    """
    choice("kind", kind, JITTERS)
    if kind == "uniform":
        half_s = np.sqrt(3) * quantity("std_s", std_s, unit="s", array=False)
        return barrier.Uniform(quantity("mean_s", mean_s, unit="s", array=False) - half_s, mean_s + half_s)
    made = {"normal": barrier.Normal, "lognormal": barrier.LogNormal, "exponential": barrier.ShiftedExponential}
    return made[kind](mean_s, std_s)
