"""The barrier: closed forms of extreme-value theory and a seeded simulation are the oracles."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib.formulas import barrier
from dtlib.formulas.jitter import LogNormal, Normal, ShiftedExponential, Uniform
from dtlib.simulators.stragglers import simulate_steps

RANKS = np.array([1, 2, 3, 10, 100, 1000, 16_384, 100_000])
DISTRIBUTIONS = [
    Normal(1.0, 0.05),
    ShiftedExponential(1.0, 0.1),
    LogNormal(1.0, 0.3),
    Uniform(0.9, 1.3),
]
each = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: type(d).__name__)


def test_ledger_L04_ten_percent_longer_and_nine_tenths_of_the_rate_are_two_things():
    assert barrier.step_time_s([1.0] * 16_383 + [1.1]) == 1.1
    assert barrier.slowdown_of_longer_time(0.10) == pytest.approx(1.10, rel=1e-15)
    assert barrier.slowdown_of_lower_rate(0.9) == pytest.approx(10 / 9, rel=1e-15)
    assert barrier.slowdown_of_lower_rate(1) == 1


def test_ledger_L05_one_failure_idles_all_the_others():
    assert barrier.idle_ranks_after_failure(16_384) == 16_383
    assert barrier.idle_ranks_after_failure(np.array([1, 8])).tolist() == [0, 7]


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_step_and_waiting_are_what_a_loop_over_ranks_finds(ranks):
    times = np.random.default_rng(ranks).uniform(1, 9, (3, ranks))
    waits, shares = barrier.waiting_s(times), barrier.waiting_share(times)
    for step, row in enumerate(times.tolist()):
        longest = sorted(row)[-1]
        assert barrier.step_time_s(row) == barrier.step_time_s(times)[step] == longest
        assert waits[step].tolist() == pytest.approx([longest - time for time in row])
        share = sum(longest - time for time in row) / (longest * ranks)
        assert shares[step] == pytest.approx(share) == barrier.waiting_share(row)
    assert type(barrier.waiting_share(row)) is type(barrier.step_time_s(row)) is float


def test_uniform_and_exponential_maxima_have_closed_forms():
    uniform = barrier.expected_maximum_s(Uniform(0, 1), RANKS)
    np.testing.assert_allclose(uniform, RANKS / (RANKS + 1), rtol=1e-9)
    harmonic = np.array([math.fsum(1 / k for k in range(1, n + 1)) for n in RANKS])
    shifted = barrier.expected_maximum_s(ShiftedExponential(5, 2), RANKS)
    np.testing.assert_allclose(shifted, 3 + 2 * harmonic, rtol=1e-9)


def test_normal_maximum_meets_the_published_order_statistics():
    """Tables of normal order statistics (Harter 1961; Tippett 1925)."""
    published = {
        1: 0.0,
        2: 1 / math.sqrt(math.pi),
        3: 1.5 / math.sqrt(math.pi),
        4: 1.02938,
        5: 1.16296,
        10: 1.53875,
        100: 2.50759,
        1000: 3.24144,
    }
    maxima = barrier.expected_maximum_s(Normal(10, 1), np.array(list(published))) - 10
    assert maxima.tolist() == pytest.approx(list(published.values()), abs=6e-6)


def test_lognormal_maximum_of_two_has_a_closed_form():
    times = LogNormal(2.0, 3.0)
    phi = (1 + math.erf(times.log_std / 2)) / 2
    assert barrier.expected_maximum_s(times, 2) == pytest.approx(2 * 2.0 * phi, rel=1e-9)


@each
def test_quadrature_agrees_with_the_integral_of_the_tail(distribution):
    """An independent way: E[max] is the integral of 1 - cdf**n, on a fine grid in time."""
    times = np.linspace(0, 8, 40_001)
    cdf = distribution.cdf(times)
    for ranks in (1, 7, 1000):
        by_tail = np.trapezoid(1 - cdf**ranks, times)
        maximum = barrier.expected_maximum_s(distribution, ranks)
        assert maximum == pytest.approx(by_tail, rel=1e-5)
        kept = barrier.throughput_kept(distribution, ranks)
        assert kept == pytest.approx(distribution.mean_s / by_tail, rel=1e-5)
    assert barrier.throughput_kept(distribution, 1) == pytest.approx(1, rel=1e-12)


@each
def test_simulation_agrees_within_five_standard_errors(distribution):
    steps = simulate_steps(distribution, ranks=200, steps=2000, seed=7)
    assert np.array_equal(steps, simulate_steps(distribution, ranks=200, steps=2000, seed=7))
    error = steps.std() / math.sqrt(steps.size)
    assert abs(steps.mean() - barrier.expected_maximum_s(distribution, 200)) < 5 * error


def test_a_simulation_in_blocks_draws_step_after_step():
    """Three steps to a block: the last of five is the fifth of a million and a half draws."""
    draws = np.random.default_rng(3).uniform(1, 2, (5, 300_000))
    simulated = simulate_steps(Uniform(1, 2), 300_000, steps=5, seed=3)
    assert simulated.tolist() == draws.max(axis=1).tolist()


@pytest.mark.parametrize(
    "exact", [Normal(1.5, 0), ShiftedExponential(1.5, 0), LogNormal(1.5, 0), Uniform(1.5, 1.5)]
)
def test_without_spread_nobody_waits(exact):
    np.testing.assert_allclose(barrier.expected_maximum_s(exact, RANKS), 1.5, rtol=1e-12)
    assert exact.cdf(np.array([1.4, 1.6])).tolist() == [0, 1]


@given(n=st.integers(1, 10**6), more=st.integers(1, 1000), which=st.sampled_from(DISTRIBUTIONS))
def test_more_ranks_never_wait_less(n, more, which):
    fewer_s, more_s = barrier.expected_maximum_s(which, np.array([n, n + more]))
    assert fewer_s < more_s * (1 + 1e-12)


def test_a_straggler_becomes_certain():
    assert barrier.probability_of_straggler(1e-18, 1000) == pytest.approx(1e-15, rel=1e-9)
    assert barrier.probability_of_straggler(0.5, 3) == pytest.approx(7 / 8)
    assert barrier.probability_of_straggler(np.array([0, 1]), 16_384).tolist() == [0, 1]


def test_two_point_step_time_by_enumeration():
    slow, usual, factor, ranks = 0.2, 3.0, 2.5, 4
    mean = sum(
        math.comb(ranks, k) * slow**k * (1 - slow) ** (ranks - k) * usual * (factor if k else 1)
        for k in range(ranks + 1)
    )
    curve = barrier.expected_step_time_s(usual, factor, slow, np.array([1, ranks]))
    assert curve[1] == pytest.approx(mean)
    assert barrier.expected_step_time_s(usual, 1, slow, ranks) == usual


def test_the_widest_distribution_that_is_accepted_has_a_finite_maximum():
    widest = LogNormal(1e-30, 1e30)
    assert barrier.expected_maximum_s(widest, 1) == pytest.approx(1e-30, rel=1e-9)
    assert 1e-30 < barrier.expected_maximum_s(widest, 8) < 8.1e-30


NORMAL, WIDE = Normal(1.0, 0.05), np.array([2**64 - 1], dtype=np.uint64)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: barrier.step_time_s([]), "^times_s must hold the time of at least one rank"),
        (lambda: barrier.step_time_s(1.0), "^times_s must hold the time of at least one rank"),
        (lambda: barrier.step_time_s([1.0, math.nan]), "^times_s must be finite"),
        (lambda: barrier.waiting_s([]), "^times_s must hold the time of at least one rank"),
        (lambda: barrier.waiting_s([1, -1]), "^times_s must be at least 0 s"),
        (
            lambda: barrier.waiting_share([0, 0]),
            r"^times_s must hold a time above 0 s for every step, got \[0, 0\]",
        ),
        (
            lambda: barrier.waiting_share(np.array([[1.0, 2.0], [0.0, 0.0]])),
            "^times_s must hold a time above 0 s",
        ),
        (
            lambda: barrier.step_time_s([[1, 2], [3]]),
            r"^times_s must have the same ranks in every row, got \[\[1, 2\], \[3\]\]",
        ),
        (
            lambda: barrier.step_time_s(np.array([1, 2], dtype="m8[s]")),
            "^times_s must be a number in s",
        ),
        (lambda: barrier.slowdown_of_lower_rate(0), "^rate must be above 0"),
        (lambda: barrier.slowdown_of_lower_rate(5e-324), "^rate must be at least 1e-30"),
        (lambda: barrier.slowdown_of_lower_rate(1.1), "^rate must be at most 1"),
        (lambda: barrier.slowdown_of_longer_time("0.1"), "^longer_by must be a number"),
        (lambda: barrier.idle_ranks_after_failure(True), "^ranks must be a whole number"),
        (lambda: barrier.idle_ranks_after_failure(WIDE), "^ranks must be at most"),
        (lambda: barrier.expected_maximum_s(NORMAL, 2.5), "^ranks must be a whole number"),
        (lambda: barrier.expected_maximum_s(NORMAL, 0), "^ranks must be at least 1"),
        (
            lambda: barrier.expected_maximum_s(5, 8),
            "^distribution must be a Distribution, such as .*, got 5",
        ),
        (
            lambda: barrier.throughput_kept(None, 8),
            "^distribution must be a Distribution, such as .*, got None",
        ),
        (lambda: barrier.probability_of_straggler(1.5, 8), "^slow_share must be at most 1"),
        (
            lambda: barrier.probability_of_straggler(np.ones(3), np.array([1, 2])),
            "the shapes of slow_share .* and ranks .* do not",
        ),
        (lambda: barrier.expected_step_time_s(1, 0.9, 0.1, 8), "^slowdown must be at least 1"),
        (lambda: barrier.expected_step_time_s(-1, 1, 0.1, 8), "^usual_time_s must be at least 0 s"),
        (
            lambda: simulate_steps(Normal, 8, 1, 1),
            "^distribution must be a Normal or a LogNormal .*, got <class",
        ),
        (lambda: simulate_steps(NORMAL, 4, 0, 0), "^steps must be at least 1"),
        (lambda: simulate_steps(NORMAL, 8, 10**30, 1), "^steps must be at most 50000000"),
        (lambda: simulate_steps(NORMAL, 2**31 - 1, 2, 1), "^ranks must be at most 50000000"),
        (
            lambda: simulate_steps(NORMAL, 10**4, 10**4, 1),
            "^ranks x steps must be at most 50000000, got 100000000",
        ),
        (lambda: simulate_steps(NORMAL, 1, 1, -1), "^seed must be at least 0"),
    ],
)
def test_what_cannot_be_computed_is_named(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()
