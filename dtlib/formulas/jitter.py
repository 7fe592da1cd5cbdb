"""How the time of one rank's step varies: distributions by their mean and their spread.

``jitter`` makes one by its name in ``JITTERS``, all of them with the mean and the standard
deviation that are asked for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dtlib.arguments import LARGEST, choice, plain, real_number, shown, store

__all__ = [
    "JITTERS",
    "Distribution",
    "LogNormal",
    "Normal",
    "ShiftedExponential",
    "Uniform",
    "jitter",
    "normal_tail",
]

JITTERS = ("normal", "lognormal", "exponential", "uniform")
NORMAL_MEAN_OVER_STD = 8  # at least

normal_tail = np.vectorize(lambda score: math.erfc(score / math.sqrt(2)) / 2, otypes=[float])
_score_of_share = np.vectorize(NormalDist().inv_cdf, otypes=[float])


class Distribution(ABC):
    """The distribution of one rank's step time.

    A member is described by ``time_at_score_s``: the time as a function of a standard normal score,
    so that the normal distribution is a straight line and the others are curves. One quadrature
    then serves them all.
    """

    mean_s: float

    @abstractmethod
    def time_at_score_s(self, score: np.ndarray) -> np.ndarray:
        """The time with as much probability below it as a standard normal variable has below
        ``score``.
        """

    @abstractmethod
    def _cdf(self, time_s: Any) -> Any:
        """``cdf``, for a checked time."""

    @np.errstate(under="ignore")  # a score or a share too small for a float is 0
    def cdf(self, time_s: Any) -> Any:
        """The probability that a rank needs at most ``time_s``."""
        return plain(self._cdf(real_number("time_s", time_s, unit="s", negative=True)))

    @np.errstate(under="ignore")
    def quantile_s(self, share: Any) -> Any:
        """The time that a ``share`` of ranks, strictly between 0 and 1, does not exceed."""
        share = real_number("share", share, zero=False)
        if np.any(np.asarray(share) >= 1):
            raise ValueError(f"share must be below 1, got {shown(share)}")
        return plain(self.time_at_score_s(_score_of_share(share)))

    def _score(self, distance: Any, spread: float) -> np.ndarray:
        """``distance / spread``; with no spread, everything lies at infinity on its side."""
        with np.errstate(over="ignore"):
            return (
                np.divide(distance, spread)
                if spread
                else np.where(np.less(distance, 0), -np.inf, np.inf)
            )


@dataclass(frozen=True)
class Normal(Distribution):
    """Jitter that is the sum of many small causes.

    A normal variable has a tail below zero, and a time has not: ``std_s`` is at most 1/8 of
    ``mean_s``, so that a draw below 0 has probability 6e-16 and never comes up in a simulation. A
    wider spread is a ``LogNormal``, which is positive.

    >>> Normal(1.0, 0.1).quantile_s(0.5)
    1.0
    >>> Normal(1.0, 5.0)
    Traceback (most recent call last):
    ...
    ValueError: std_s must be at most 0.125 s, got 5.0
    """

    mean_s: float
    std_s: float

    def __post_init__(self) -> None:
        mean_s = real_number("mean_s", self.mean_s, unit="s", zero=False, array=False)
        widest_s = mean_s / NORMAL_MEAN_OVER_STD
        std_s = real_number("std_s", self.std_s, unit="s", at_most=widest_s, array=False)
        store(self, mean_s=mean_s, std_s=std_s)

    def time_at_score_s(self, score: np.ndarray) -> np.ndarray:
        return self.mean_s + self.std_s * score

    def _cdf(self, time_s: Any) -> Any:
        return normal_tail(-self._score(time_s - self.mean_s, self.std_s))


@dataclass(frozen=True)
class ShiftedExponential(Distribution):
    """A fixed time, ``mean_s - scale_s``, plus an exponential tail whose mean and standard
    deviation is ``scale_s``.

    Its expected maximum has a closed form: mean_s + scale_s (1/2 + 1/3 + ... + 1/n).
    """

    mean_s: float
    scale_s: float

    def __post_init__(self) -> None:
        mean_s = real_number("mean_s", self.mean_s, unit="s", zero=False, array=False)
        scale_s = real_number("scale_s", self.scale_s, unit="s", at_most=mean_s, array=False)
        store(self, mean_s=mean_s, scale_s=scale_s)

    @property
    def shift_s(self) -> float:
        return self.mean_s - self.scale_s

    def time_at_score_s(self, score: np.ndarray) -> np.ndarray:
        return self.shift_s - self.scale_s * np.log(normal_tail(score))

    def _cdf(self, time_s: Any) -> Any:
        return -np.expm1(-np.maximum(self._score(time_s - self.shift_s, self.scale_s), 0))


@dataclass(frozen=True)
class LogNormal(Distribution):
    """A skewed time with the given mean and standard deviation: the logarithm of the time is
    normal.
    """

    mean_s: float
    std_s: float

    def __post_init__(self) -> None:
        mean_s = real_number("mean_s", self.mean_s, unit="s", zero=False, array=False)
        std_s = real_number("std_s", self.std_s, unit="s", array=False)
        store(self, mean_s=mean_s, std_s=std_s)

    @property
    def log_std(self) -> float:
        return math.sqrt(math.log1p((self.std_s / self.mean_s) ** 2))

    @property
    def log_mean(self) -> float:
        return math.log(self.mean_s) - self.log_std**2 / 2

    def time_at_score_s(self, score: np.ndarray) -> np.ndarray:
        return np.exp(self.log_mean + self.log_std * score)

    def _cdf(self, time_s: Any) -> Any:
        with np.errstate(divide="ignore"):
            log_time = np.log(np.maximum(time_s, 0.0))
        return normal_tail(-self._score(log_time - self.log_mean, self.log_std))


@dataclass(frozen=True)
class Uniform(Distribution):
    """Equally likely anywhere between two bounds: its maximum cannot pass ``high_s``, however many
    ranks there are.
    """

    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        high_s = real_number("high_s", self.high_s, unit="s", zero=False, array=False)
        low_s = real_number("low_s", self.low_s, unit="s", at_most=high_s, array=False)
        store(self, low_s=low_s, high_s=high_s)

    @property
    def mean_s(self) -> float:
        return (self.low_s + self.high_s) / 2

    def time_at_score_s(self, score: np.ndarray) -> np.ndarray:
        return self.low_s + (self.high_s - self.low_s) * normal_tail(-score)

    def _cdf(self, time_s: Any) -> Any:
        return np.clip(self._score(time_s - self.low_s, self.high_s - self.low_s), 0, 1)


def jitter(kind: str, mean_s: float, std_s: float) -> Distribution:
    """One rank's step time, with this mean and standard deviation in seconds; ``kind`` is one of
    JITTERS.

    A uniform variable of standard deviation s spans 2 sqrt(3) s. No time is below 0, so that
    ``std_s`` is at most the mean of an exponential, 1/sqrt(3) of the mean of a uniform and 1/8 of
    the mean of a normal one.

    >>> jitter("uniform", 10.0, 0.2).cdf(10.0)
    0.5
    """
    kind = choice("kind", kind, JITTERS)
    mean_s = real_number("mean_s", mean_s, unit="s", zero=False, array=False)
    widest_s = {"exponential": mean_s, "uniform": mean_s / math.sqrt(3)}.get(kind, LARGEST)
    std_s = real_number("std_s", std_s, unit="s", at_most=widest_s, array=False)
    if kind == "uniform":
        half_s = min(math.sqrt(3) * std_s, mean_s)
        return Uniform(mean_s - half_s, mean_s + half_s)
    made = {"normal": Normal, "lognormal": LogNormal, "exponential": ShiftedExponential}
    return made[kind](mean_s, std_s)
