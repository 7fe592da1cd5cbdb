"""The exercises of *A step is a barrier*."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dtlib.formulas.barrier import expected_maximum_s, slowdown_of_lower_rate, step_time_s
from dtlib.formulas.jitter import jitter
from dtlib.teaching.checks import FunctionCheck, NumberCheck, define

__all__ = [
    "check_defect_share",
    "check_expected_step",
    "check_exponential_step",
    "check_slow_rank",
    "check_slowdown",
]

check_slow_rank = define(
    "barrier-slow-rank",
    chapter="barrier",
    title="One GPU throttles",
    kind="predict",
    minutes=3,
    points=1,
    task=(
        "A step takes 10 s on each of 1,024 GPUs. One overheats and runs at 0.8 of its speed. The "
        "step, in seconds?"
    ),
    check=NumberCheck(
        lambda: step_time_s([10.0] * 1023 + [10.0 * slowdown_of_lower_rate(0.8)]),
        unit="s",
        hints=(
            (
                12.0,
                "That GPU would take 20% longer. This one has 0.8 of the speed: its time is "
                "divided by that.",
            ),
            (10.0, "This is the mean over the GPUs. The step ends with the last of them."),
            (8.0, "Less speed takes more time: divide."),
            (2.5, "This is the time added. The step itself is asked."),
        ),
        explanation="The time is the work over the speed, and 1,023 GPUs wait for it.",
    ),
)


check_defect_share = define(
    "barrier-defect-share",
    chapter="barrier",
    title="How rare is rare enough",
    kind="compute",
    minutes=7,
    points=2,
    task=(
        "Each GPU has a defect with probability q, independently. At which q do 10% of jobs on "
        "16,384 GPUs get one or more?"
    ),
    check=NumberCheck(
        lambda: -math.expm1(math.log1p(-0.1) / 16_384),
        unit="share",
        hints=(
            (
                0.1 / 16_384,
                "Close: chances were divided as if no job could have two such GPUs. Solve 1 - (1 - "
                "q)^n exactly.",
            ),
            (
                -math.expm1(math.log(0.1) / 16_384),
                "At this q, 10% of the jobs are spared. 10% are to be hit.",
            ),
            (0.1, "This is the share of jobs. The share of GPUs is far smaller."),
            (1 - 0.9**16_384, "The power is the wrong way around: q comes out of a root."),
        ),
        explanation="1 - q is the 16,384th root of 0.9: some six GPUs in a million.",
    ),
)


def _harmonic(n: int) -> float:
    return math.fsum(1 / k for k in range(1, n + 1))


check_exponential_step = define(
    "barrier-exponential-step",
    chapter="barrier",
    title="A heavier tail",
    kind="compute",
    minutes=6,
    points=2,
    task="A rank's step takes 9.5 s plus an exponential delay of mean 0.5 s. The expected step of "
    "1,000 ranks, in seconds? "
    "The largest of n exponential delays of mean s is s (1 + 1/2 + ... + 1/n) on average.",
    check=NumberCheck(
        lambda: expected_maximum_s(jitter("exponential", 10.0, 0.5), 1000),
        unit="s",
        hints=(
            (10.0, "This is the mean of one rank. The slowest of 1,000 is asked."),
            (
                10.0 + 0.5 * _harmonic(1000),
                "The mean delay is counted twice: the delay starts from 9.5 s.",
            ),
            (
                10.0 + 0.5 * math.sqrt(2 * math.log(1000)),
                "The square root belongs to a normal tail.",
            ),
            (
                9.5 + 0.5 * math.log(1000),
                "The logarithm grows as the sum does, and is smaller: add up the thousand terms.",
            ),
            (0.5 * _harmonic(1000), "This is the delay alone: the fixed part comes on top."),
            (9.5 + 1000 * 0.5, "The delays run side by side: they are not added up."),
        ),
        explanation="The sum of the 1/k grows like ln n, faster than the square root of it.",
    ),
)


check_slowdown = define(
    "barrier-slowdown",
    chapter="barrier",
    title="From speeds to a slowdown",
    kind="implement",
    minutes=5,
    points=2,
    task=(
        "Write slowdown(rates): how many times longer a step takes when its ranks run at these "
        "shares of the usual speed."
    ),
    check=FunctionCheck(
        lambda rates: slowdown_of_lower_rate(min(rates)),
        # In the first case every mistake below gives another number, so that each hint is about its
        # own.
        cases=(
            ([0.95, 0.7, 1.0, 0.8, 0.85, 0.9],),
            ([0.5, 1.0, 0.9],),
            ([1.0, 1.0, 0.9],),
            ([1.0],),
        ),
        hints=(
            (
                lambda rates: len(rates) / sum(rates),
                "This takes the mean speed. Who decides when the step ends?",
            ),
            (
                lambda rates: sum(1 / rate for rate in rates) / len(rates),
                "This is the mean of the ranks' times.",
            ),
            (lambda rates: 1 / max(rates), "This is the fastest rank, and it waits."),
            (
                lambda rates: 2 - min(rates),
                "This adds what is missing to 1: right for a rank that takes so much "
                "longer. Here a speed is given.",
            ),
            (
                min,
                "This is the throughput that is kept. The step gets longer, so the answer is at "
                "least 1.",
            ),
            (
                lambda rates: 1 / min(rates) - 1,
                "This is the time added, as a share of the usual step. The step itself is asked.",
            ),
            (
                lambda rates: 2 - sum(rates) / len(rates),
                "This adds the mean loss of speed to 1. Who decides when the step "
                "ends, and how does time follow from speed?",
            ),
            (
                lambda rates: sum(rates) / len(rates),
                "This is the mean speed. A time is asked, and it is at least 1.",
            ),
            (
                lambda rates: 1 / float(np.median(rates)),
                "This is the rank in the middle, and half of them are slower.",
            ),
            (lambda rates: 1 / rates[0], "The first rank of the list need not be the slowest."),
            (lambda rates: 1 / rates[-1], "The last rank of the list need not be the slowest."),
        ),
        explanation="Work over speed, for the slowest.",
    ),
)


def expected_step(times_s: Sequence[float], ranks: int) -> float:
    """Expected maximum of ``ranks`` draws from measured times, each equally likely: an exact sum
    over the sorted times.
    """
    at_most = (np.arange(len(times_s) + 1) / len(times_s)) ** ranks
    return float(np.diff(at_most) @ np.sort(times_s))


def _without_differences(times_s: Sequence[float], ranks: int) -> float:
    return float((np.arange(1, len(times_s) + 1) / len(times_s)) ** ranks @ np.sort(times_s))


def _unsorted(times_s: Sequence[float], ranks: int) -> float:
    return float(np.diff((np.arange(len(times_s) + 1) / len(times_s)) ** ranks) @ np.array(times_s))


check_expected_step = define(
    "barrier-expected-step",
    chapter="barrier",
    title="The step that measured times predict",
    kind="implement",
    minutes=12,
    points=3,
    task="Write expected_step(times_s, ranks): the expected maximum of so many independent draws "
    "from a list of measured "
    "times, each equally likely. Exact, without random numbers.",
    check=FunctionCheck(
        expected_step,
        unit="s",
        cases=(
            ([3.0, 1.0, 2.0, 1.0], 2),
            ([1.0, 3.0], 1),
            ([4.0, 1.0, 2.0], 3),
            ([10.0] * 99 + [11.0], 100),
            ([7.0], 5),
        ),
        hints=(
            (
                lambda times_s, ranks: sum(times_s) / len(times_s),
                "This is the mean of one rank: it is right for one rank only.",
            ),
            (
                lambda times_s, ranks: max(times_s),
                "The slowest time on the list is a bound: not every step draws it.",
            ),
            (
                lambda times_s, ranks: expected_step(sorted(set(times_s)), ranks),
                "Equal times count once here, and a time that was measured twice is twice as "
                "likely.",
            ),
            (
                lambda times_s, ranks: float(np.median(times_s)),
                "This is the median of one rank. The slowest of several is asked.",
            ),
            (
                _without_differences,
                "The powers give the chance of at most this time. The chance of exactly this time "
                "is the difference of two of them.",
            ),
            (_unsorted, "The i-th time has i times at or below it only once they are sorted."),
        ),
        explanation="Feed it a log of real step times of single ranks, and it predicts the job.",
    ),
)
