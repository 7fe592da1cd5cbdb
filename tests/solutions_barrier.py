"""Reference solutions of *A step is a barrier*, written as a student would: none of them calls
dtlib.
"""

slow_rank_s = 10 / 0.8
defect_share = 1 - 0.9 ** (1 / 16_384)
exponential_step_s = 9.5 + 0.5 * sum(1 / k for k in range(1, 1001))


def slowdown(rates):
    return max(1 / rate for rate in rates)


def expected_step(times_s, ranks):
    expected, below = 0.0, 0.0
    for i, time_s in enumerate(sorted(times_s), start=1):
        at_most = (i / len(times_s)) ** ranks
        expected += time_s * (at_most - below)
        below = at_most
    return expected
