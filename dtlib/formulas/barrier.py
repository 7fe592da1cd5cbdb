"""A step is a barrier: its time is the largest of its ranks' times.

The expected step time of n ranks is the expected maximum of n draws from the distribution of one
rank's time. What is assumed: ranks are independent of each other and alike. Correlated slowness
breaks it: a rack that runs hot slows all its ranks at once, and the step time then behaves as if
there were fewer, larger ranks. So does persistence: jitter is drawn anew each step, while a
straggler that stays slow costs every step the same, which is the two-point case at the end of this
module and not a distribution's tail. ``dtlib.simulators.stragglers`` draws the steps at random.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dtlib.arguments import broadcasting, instance, plain, real_number, shown, whole_number
from dtlib.formulas.jitter import Distribution, normal_tail

__all__ = [
    "expected_maximum_s",
    "expected_step_time_s",
    "idle_ranks_after_failure",
    "probability_of_straggler",
    "slowdown_of_longer_time",
    "slowdown_of_lower_rate",
    "step_time_s",
    "throughput_kept",
    "waiting_s",
    "waiting_share",
]


def _times(times_s: Any) -> np.ndarray:
    """Times by rank along the last axis, from an array or nested lists."""
    try:
        times = np.asarray(times_s)
    except ValueError:  # rows of different lengths
        raise ValueError(
            f"times_s must have the same ranks in every row, got {shown(times_s)}"
        ) from None
    if times.size == 0 or times.ndim == 0:
        raise ValueError(
            "times_s must hold the time of at least one rank along its last axis, got "
            f"{shown(times_s)}"
        )
    return real_number("times_s", times, unit="s")


def step_time_s(times_s: Any) -> Any:
    """Seconds of a step: the maximum over ranks, which are the last axis of ``times_s``.

    >>> step_time_s([1.0, 1.0, 1.1])
    1.1
    """
    return plain(np.max(_times(times_s), axis=-1))


def waiting_s(times_s: Any) -> np.ndarray:
    """Seconds that each rank waits for the slowest; ranks are the last axis of ``times_s``.

    >>> waiting_s([10.0, 10.0, 11.0])
    array([1., 1., 0.])
    """
    times_s = _times(times_s)
    return np.max(times_s, axis=-1, keepdims=True) - times_s


def waiting_share(times_s: Any) -> Any:
    """The share of all ranks' time that is spent waiting: 1 - mean / maximum.

    >>> round(waiting_share([10.0, 10.0, 10.0, 12.5]), 3)
    0.15
    """
    checked = _times(times_s)
    step_s = np.max(checked, axis=-1, keepdims=True)
    if not np.all(step_s):
        raise ValueError(f"times_s must hold a time above 0 s for every step, got {shown(times_s)}")
    return plain(np.mean((step_s - checked) / step_s, axis=-1))


def slowdown_of_longer_time(longer_by: Any) -> Any:
    """How much longer the step takes when one rank takes ``longer_by`` (a share) longer: 1 +
    longer_by.

    >>> slowdown_of_longer_time(0.10)
    1.1
    """
    return 1 + real_number("longer_by", longer_by)


def slowdown_of_lower_rate(rate: Any) -> Any:
    """How much longer the step takes when one rank runs at ``rate`` (a share) of the usual speed: 1
    / rate.

    A rank at 0.9 of the speed costs more than a rank that takes 10% longer.

    >>> round(slowdown_of_lower_rate(0.9), 4)
    1.1111
    """
    return 1 / real_number("rate", rate, zero=False, at_most=1)


def idle_ranks_after_failure(ranks: Any) -> Any:
    """Ranks that wait when one has failed: all the others.

    >>> idle_ranks_after_failure(16384)
    16383
    """
    return whole_number("ranks", ranks, array=True) - 1


@lru_cache(maxsize=1)
def _scores() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A grid of normal scores with the logarithms of the normal density (times the grid's step) and
    of the cdf.

    The trapezoidal rule converges exponentially here, since the integrand is smooth and vanishes at
    both ends: with steps of 1/32 its error is far below rounding. Above 37 the tail probability
    underflows.
    """
    step = 1 / 32
    score = np.arange(-12, 37, step)
    log_density = math.log(step / math.sqrt(2 * math.pi)) - score**2 / 2
    log_cdf = np.where(score < 0, np.log(normal_tail(-score)), np.log1p(-normal_tail(abs(score))))
    return score, log_density, log_cdf


def _checked(distribution: Distribution) -> Distribution:
    return instance("distribution", distribution, Distribution, such_as="Normal(1.0, 0.02)")


@np.errstate(under="ignore")  # the far tails of the integrand are 0
def expected_maximum_s(distribution: Distribution, ranks: Any) -> Any:
    """Expected step time of ``ranks`` independent ranks, in seconds, for a count or an array of
    counts.

    E[max] is the integral of t(z) n cdf(z)**(n-1) density(z) over the normal score z, where t(z) is
    the time at that score. Relative error below 1e-9 for up to 1e6 ranks.

    >>> from dtlib.formulas.jitter import Normal, Uniform
    >>> round(expected_maximum_s(Uniform(0, 1), 3), 12)
    0.75
    >>> expected_maximum_s(Normal(1.0, 0.02), np.array([1, 100, 10_000])).round(4)
    array([1.    , 1.0502, 1.077 ])
    """
    _checked(distribution)
    ranks = whole_number("ranks", ranks, array=True)
    score, log_density, log_cdf = _scores()
    n = np.asarray(ranks, dtype=float)[..., None]
    weights = np.exp(np.log(n) + (n - 1) * log_cdf + log_density)
    return plain(weights @ distribution.time_at_score_s(score))


def throughput_kept(distribution: Distribution, ranks: Any) -> Any:
    """The share of throughput left by the barrier: the mean time of a rank over the expected time
    of the step.

    >>> from dtlib.formulas.jitter import Normal
    >>> round(throughput_kept(Normal(1.0, 0.02), 10_000), 3)
    0.928
    """
    return _checked(distribution).mean_s / expected_maximum_s(distribution, ranks)


@broadcasting
def probability_of_straggler(slow_share: Any, ranks: Any) -> Any:
    """The probability that at least one of ``ranks`` is slow when each is with probability q: 1 -
    (1 - q)**n.

    Computed through logarithms, so that a share of 1e-18 does not round to zero.

    >>> round(probability_of_straggler(1e-4, 16384), 3)
    0.806
    """
    slow_share = real_number("slow_share", slow_share, at_most=1)
    with np.errstate(divide="ignore"):
        return plain(-np.expm1(whole_number("ranks", ranks, array=True) * np.log1p(-slow_share)))


@broadcasting
def expected_step_time_s(usual_time_s: Any, slowdown: Any, slow_share: Any, ranks: Any) -> Any:
    """Expected seconds of a step when each rank is, with probability ``slow_share``, slower by a
    factor ``slowdown``.

    t (1 + (slowdown - 1) P), with P the probability that any rank is slow.

    >>> round(expected_step_time_s(1.0, slowdown=1.1, slow_share=1e-4, ranks=16384), 3)
    1.081
    """
    usual_time_s = real_number("usual_time_s", usual_time_s, unit="s")
    slowdown = real_number("slowdown", slowdown)
    if np.any(slowdown < 1):
        raise ValueError(f"slowdown must be at least 1, got {shown(slowdown)}")
    return usual_time_s * (1 + (slowdown - 1) * probability_of_straggler(slow_share, ranks))
