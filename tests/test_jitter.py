"""Distributions of a rank's step time: their functions undo each other, and their samples have the
moments asked for.
"""

import numpy as np
import pytest

from dtlib.formulas.jitter import JITTERS, LogNormal, Normal, ShiftedExponential, Uniform, jitter
from dtlib.simulators.stragglers import simulate_steps

DISTRIBUTIONS = [
    Normal(1.0, 0.05),
    ShiftedExponential(1.0, 0.1),
    LogNormal(1.0, 0.3),
    Uniform(0.9, 1.3),
]
each = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: type(d).__name__)


@each
def test_cdf_undoes_quantile(distribution):
    shares = np.array([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])
    np.testing.assert_allclose(distribution.cdf(distribution.quantile_s(shares)), shares, rtol=1e-8)
    assert isinstance(distribution.cdf(1.0), float) and isinstance(
        distribution.quantile_s(0.5), float
    )


@pytest.mark.parametrize("kind", JITTERS)
def test_every_jitter_has_the_mean_and_the_standard_deviation_asked_for(kind):
    """By numpy's own samplers, and by the quantiles of a fine grid of shares."""
    times = jitter(kind, 10.0, 0.5)
    drawn = simulate_steps(times, ranks=1, steps=200_000, seed=1)
    even = times.quantile_s((np.arange(20_000) + 0.5) / 20_000)
    for sample in (drawn, even):
        assert sample.mean() == pytest.approx(10.0, abs=0.006)
        assert sample.std() == pytest.approx(0.5, rel=0.02)
    assert times.mean_s == pytest.approx(10.0, rel=1e-12)


@pytest.mark.parametrize("kind", JITTERS)
def test_times_are_positive_even_at_the_widest_spread(kind):
    """The widest that is accepted: what one rank in 1e15 needs at least is no negative time."""
    widest_s = {"normal": 1 / 8, "exponential": 1.0, "uniform": 1 / 3**0.5, "lognormal": 1e30}[kind]
    assert jitter(kind, 1.0, widest_s).quantile_s(1e-15) >= 0
    assert jitter(kind, 1.0, widest_s).cdf(0.0) < 1e-15
    assert jitter(kind, 1.0, widest_s).cdf(-1.0) < 1e-15


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Normal(0, 0), "^mean_s must be above 0 s"),
        (lambda: Normal(1, -1), "^std_s must be at least 0 s"),
        (lambda: Normal(1, 5), "^std_s must be at most 0.125 s, got 5"),
        (lambda: Normal(np.ones(2), 0.1), "^mean_s must be a number in s"),
        (lambda: Normal(1, np.ones(2) / 9), "^std_s must be a number in s"),
        (lambda: jitter("normal", 1, 5), "^std_s must be at most 0.125 s, got 5"),
        (lambda: jitter("uniform", 1, 1), "^std_s must be at most 0.57735 s, got 1"),
        (lambda: jitter("exponential", 1, 2), "^std_s must be at most 1 s, got 2"),
        (lambda: jitter("uniform", 1.0, -0.1), "^std_s must be at least 0 s"),
        (lambda: jitter("uniform", 1.0, "8"), "^std_s must be a number in s"),
        (lambda: jitter("uniform", 0, 0), "^mean_s must be above 0 s"),
        (lambda: jitter("uniform", np.ones(2), 0.1), "^mean_s must be a number in s"),
        (lambda: jitter("uniform", 1, np.ones(2) / 8), "^std_s must be a number in s"),
        (lambda: jitter("gauss", 1.0, 0.1), "^kind must be one of 'normal', .*, got 'gauss'"),
        (lambda: ShiftedExponential(1, 2), "^scale_s must be at most 1 s"),
        (lambda: ShiftedExponential(0, 0), "^mean_s must be above 0 s"),
        (lambda: ShiftedExponential(np.ones(2), 0), "^mean_s must be a number in s"),
        (lambda: ShiftedExponential(1, np.ones(2)), "^scale_s must be a number in s"),
        (lambda: LogNormal(0, 1), "^mean_s must be above 0 s"),
        (lambda: LogNormal(1, -1), "^std_s must be at least 0 s"),
        (lambda: LogNormal(np.ones(2), 1), "^mean_s must be a number in s"),
        (lambda: LogNormal(1, np.ones(2)), "^std_s must be a number in s"),
        (lambda: LogNormal(1, 1e160), "^std_s must be finite"),
        (lambda: LogNormal(1e-300, 1e300), "^mean_s must be at least 1e-30"),
        (lambda: Uniform(2, 1), "^low_s must be at most 1 s"),
        (lambda: Uniform(0, 0), "^high_s must be above 0 s"),
        (lambda: Uniform(0, np.ones(2)), "^high_s must be a number in s"),
        (lambda: Uniform(np.ones(2), 5), "^low_s must be a number in s"),
        (lambda: Normal(1, 0.1).quantile_s(1.0), r"^share must be below 1, got 1\.0"),
        (lambda: Normal(1, 0.1).quantile_s(np.array([0.5, 1.5])), "^share must be below 1, got"),
        (lambda: Normal(1, 0.1).quantile_s(0), "^share must be above 0, got 0"),
        (lambda: Normal(1, 0.1).cdf("8"), "^time_s must be a number in s, got '8'"),
        (lambda: Normal(1, 0.1).cdf(float("nan")), "^time_s must be finite"),
    ],
)
def test_what_cannot_be_is_named(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()


def test_the_widest_uniform_jitter_starts_at_zero():
    for mean_s in (0.1, 1.0, 3.7):
        assert jitter("uniform", mean_s, mean_s / 3**0.5).low_s == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    "made", [Normal, ShiftedExponential, LogNormal, lambda b, a: Uniform(a, b)]
)
def test_a_distribution_is_a_value_whatever_numbers_make_it(made):
    one, other = made(np.array(1.0), np.float64(0.125)), made(1, 0.125)
    assert one == other and hash(one) == hash(other)
    assert {type(value) for value in vars(one).values()} == {float}


def test_a_spread_almost_without_width_is_a_step():
    for narrow in (Normal(1.0, 1e-320), ShiftedExponential(1.0, 1e-320)):
        assert narrow.cdf(np.array([0.5, 1e30])).tolist() == [0, 1]
