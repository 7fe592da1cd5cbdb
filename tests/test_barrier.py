"""The barrier: closed forms of extreme-value theory and a seeded simulation are the oracles."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib.formulas import barrier
from dtlib.formulas.barrier import LogNormal, Normal, ShiftedExponential, Uniform

RANKS = np.array([1, 2, 3, 10, 100, 1000, 16_384, 100_000])
DISTRIBUTIONS = [Normal(1.0, 0.05), ShiftedExponential(1.0, 0.1), LogNormal(1.0, 0.3), Uniform(0.9, 1.3)]
each = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: type(d).__name__)


def test_ledger_L04_ten_percent_longer_and_nine_tenths_of_the_rate_are_two_things():
    assert barrier.step_time_s([1.0] * 16_383 + [1.1]) == 1.1
    assert barrier.slowdown_of_longer_time(0.10) == pytest.approx(1.10, rel=1e-15)
    assert barrier.slowdown_of_lower_rate(0.9) == pytest.approx(10 / 9, rel=1e-15)


def test_ledger_L05_one_failure_idles_all_the_others():
    assert barrier.idle_ranks_after_failure(16_384) == 16_383
    assert barrier.idle_ranks_after_failure(1) == 0


def test_a_step_is_the_maximum_over_the_last_axis():
    times = np.array([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]])
    assert barrier.step_time_s(times).tolist() == [3.0, 6.0]


def test_uniform_maximum_is_n_over_n_plus_1():
    np.testing.assert_allclose(barrier.expected_maximum_s(Uniform(0, 1), RANKS), RANKS / (RANKS + 1), rtol=1e-9)


def test_exponential_maximum_is_the_harmonic_number():
    harmonic = [math.fsum(1 / k for k in range(1, n + 1)) for n in RANKS]
    np.testing.assert_allclose(barrier.expected_maximum_s(ShiftedExponential(1, 1), RANKS), harmonic, rtol=1e-9)
    shifted = barrier.expected_maximum_s(ShiftedExponential(5, 2), RANKS)
    np.testing.assert_allclose(shifted, 3 + 2 * np.array(harmonic), rtol=1e-9)


@pytest.mark.parametrize(("ranks", "maximum"), [
    (1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi)),
    # Tables of normal order statistics (Harter 1961; Tippett 1925).
    (4, 1.02938), (5, 1.16296), (10, 1.53875), (100, 2.50759), (1000, 3.24144),
])
def test_normal_maximum_meets_the_published_order_statistics(ranks, maximum):
    assert barrier.expected_maximum_s(Normal(10, 1), ranks) - 10 == pytest.approx(maximum, abs=6e-6)


def test_lognormal_maximum_of_two_has_a_closed_form():
    times = LogNormal(2.0, 3.0)
    phi = (1 + math.erf(times.log_std / 2)) / 2
    assert barrier.expected_maximum_s(times, 2) == pytest.approx(2 * 2.0 * phi, rel=1e-9)


@each
def test_quadrature_agrees_with_the_integral_of_the_tail(distribution):
    """An independent way: E[max] is the integral of 1 - cdf**n, on a fine grid in time."""
    times = np.linspace(0, 8, 400_001)
    cdf = np.where(times < 0, 0, distribution.cdf(times))
    for ranks in (1, 7, 1000):
        by_tail = np.trapezoid(1 - cdf**ranks, times)
        assert barrier.expected_maximum_s(distribution, ranks) == pytest.approx(by_tail, rel=1e-5)


@each
def test_one_rank_waits_for_nobody(distribution):
    assert barrier.expected_maximum_s(distribution, 1) == pytest.approx(distribution.mean_s, rel=1e-12)
    assert barrier.throughput_kept(distribution, 1) == pytest.approx(1, rel=1e-12)


@each
def test_cdf_undoes_quantile(distribution):
    shares = np.array([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])
    np.testing.assert_allclose(distribution.cdf(distribution.quantile_s(shares)), shares, rtol=1e-8)
    assert isinstance(distribution.cdf(1.0), float) and isinstance(distribution.quantile_s(0.5), float)


@each
def test_simulation_agrees_within_five_standard_errors(distribution):
    steps = barrier.simulate_steps(distribution, ranks=200, steps=2000, seed=7)
    assert np.array_equal(steps, barrier.simulate_steps(distribution, ranks=200, steps=2000, seed=7))
    error = steps.std() / math.sqrt(steps.size)
    assert abs(steps.mean() - barrier.expected_maximum_s(distribution, 200)) < 5 * error


def test_a_simulation_of_the_mean_instead_of_the_maximum_is_caught(monkeypatch):
    monkeypatch.setattr(barrier, "step_time_s", np.mean)
    with pytest.raises(AssertionError):
        test_simulation_agrees_within_five_standard_errors(DISTRIBUTIONS[0])


@pytest.mark.parametrize("exact", [Normal(1.5, 0), ShiftedExponential(1.5, 0), LogNormal(1.5, 0), Uniform(1.5, 1.5)])
def test_without_spread_nobody_waits(exact):
    np.testing.assert_allclose(barrier.expected_maximum_s(exact, RANKS), 1.5, rtol=1e-12)
    assert exact.cdf(np.array([1.4, 1.6])).tolist() == [0, 1]


@given(n=st.integers(1, 10**6), more=st.integers(1, 1000), which=st.sampled_from(DISTRIBUTIONS))
def test_more_ranks_never_wait_less(n, more, which):
    assert barrier.expected_maximum_s(which, n) < barrier.expected_maximum_s(which, n + more) * (1 + 1e-12)


def test_a_straggler_becomes_certain():
    assert barrier.probability_of_straggler(1e-18, 1000) == pytest.approx(1e-15, rel=1e-9)
    assert barrier.probability_of_straggler(0.5, 3) == pytest.approx(7 / 8)
    assert barrier.probability_of_straggler(0, 16_384) == 0 and barrier.probability_of_straggler(1, 1) == 1


def test_two_point_step_time_by_enumeration():
    slow, usual, factor, ranks = 0.2, 3.0, 1.5, 4
    mean = sum(math.comb(ranks, k) * slow**k * (1 - slow) ** (ranks - k) * usual * (factor if k else 1)
               for k in range(ranks + 1))
    assert barrier.expected_step_time_s(usual, factor, slow, ranks) == pytest.approx(mean)
    assert barrier.expected_step_time_s(usual, factor, slow, np.array([1, 4]))[1] == pytest.approx(mean)


@pytest.mark.parametrize(("call", "error", "names"), [
    (lambda: barrier.step_time_s([]), ValueError, "times_s"),
    (lambda: barrier.step_time_s([1.0, math.nan]), ValueError, "times_s"),
    (lambda: barrier.slowdown_of_lower_rate(0), ValueError, "rate"),
    (lambda: barrier.slowdown_of_lower_rate(1.1), ValueError, "rate"),
    (lambda: barrier.slowdown_of_longer_time("0.1"), TypeError, "longer_by"),
    (lambda: barrier.idle_ranks_after_failure(True), TypeError, "ranks"),
    (lambda: barrier.expected_maximum_s(DISTRIBUTIONS[0], 2.5), TypeError, "ranks"),
    (lambda: barrier.expected_maximum_s(DISTRIBUTIONS[0], 0), ValueError, "ranks"),
    (lambda: barrier.probability_of_straggler(1.5, 8), ValueError, "slow_share"),
    (lambda: barrier.expected_step_time_s(1, 0.9, 0.1, 8), ValueError, "slowdown"),
    (lambda: Normal(1, -1), ValueError, "std_s"),
    (lambda: ShiftedExponential(1, 2), ValueError, "scale_s"),
    (lambda: LogNormal(0, 1), ValueError, "mean_s"),
    (lambda: Uniform(2, 1), ValueError, "low_s"),
    (lambda: Normal(1, 1).quantile_s(1.0), ValueError, "share"),
    (lambda: barrier.simulate_steps(Normal(1, 1), 4, 0, 0), ValueError, "steps"),
])
def test_bad_input_is_named(call, error, names):
    with pytest.raises(error, match=names):
        call()


def test_a_distribution_is_a_value():
    assert Normal(1, 0.1) == Normal(1, 0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        DISTRIBUTIONS[0].mean_s = 2
