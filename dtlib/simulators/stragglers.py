"""Steps of many ranks, drawn at random: the question that ``dtlib.formulas.barrier`` answers in
closed form, asked of a seeded generator.

Draws come from numpy's own samplers and not from the formulas' quantiles, so that each of the two
answers checks the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dtlib.arguments import instance, whole_number
from dtlib.formulas.jitter import Distribution, LogNormal, Normal, ShiftedExponential, Uniform

__all__ = ["MOST_DRAWS", "simulate_steps"]

MOST_DRAWS = 50_000_000
DRAWS_AT_ONCE = 10**6  # some megabytes

# Independent draws of a rank's time, in this shape.
SAMPLERS: dict[type, Callable[[Any, np.random.Generator, tuple[int, int]], np.ndarray]] = {
    Normal: lambda of, random, shape: random.normal(of.mean_s, of.std_s, shape),
    LogNormal: lambda of, random, shape: random.lognormal(of.log_mean, of.log_std, shape),
    ShiftedExponential: lambda of, random, shape: (
        of.shift_s + random.exponential(of.scale_s, shape)
    ),
    Uniform: lambda of, random, shape: random.uniform(of.low_s, of.high_s, shape),
}


def simulate_steps(distribution: Distribution, ranks: int, steps: int, seed: int) -> np.ndarray:
    """Seconds of each of ``steps`` simulated steps of ``ranks`` ranks: the largest of their times.

    Up to 50 million draws, one for each rank and step.

    >>> bool(simulate_steps(Uniform(0, 1), ranks=100, steps=10, seed=1).min() > 0.9)
    True
    """
    instance("distribution", distribution, *SAMPLERS, such_as="Normal(1.0, 0.02)")
    ranks = whole_number("ranks", ranks, at_most=MOST_DRAWS)
    steps = whole_number("steps", steps, at_most=MOST_DRAWS)
    whole_number("ranks x steps", ranks * steps, at_most=MOST_DRAWS)
    generator = np.random.default_rng(whole_number("seed", seed, at_least=0))
    simulated = np.empty(steps)
    sampler = SAMPLERS[type(distribution)]
    at_once = max(1, DRAWS_AT_ONCE // ranks)
    for first in range(0, steps, at_once):
        block = simulated[first : first + at_once]
        block[:] = np.max(sampler(distribution, generator, (len(block), ranks)), axis=-1)
    return simulated
