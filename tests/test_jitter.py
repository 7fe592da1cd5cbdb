"""Distributions of a rank's step time: their functions undo each other, and their samples have the
moments asked for.
"""

import dataclasses

import numpy as np
import pytest

from dtlib.formulas import jitter as module
from dtlib.formulas.jitter import JITTERS, LogNormal, Normal, ShiftedExponential, Uniform, jitter

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
    drawn = jitter(kind, 10.0, 0.5).sample_s(np.random.default_rng(1), 200_000)
    assert drawn.mean() == pytest.approx(10.0, abs=0.006) and drawn.std() == pytest.approx(
        0.5, rel=0.02
    )


def test_a_uniform_as_wide_as_its_standard_deviation_is_caught(monkeypatch):
    monkeypatch.setattr(module, "Uniform", lambda low_s, high_s: Uniform(9.5, 10.5))
    with pytest.raises(AssertionError):
        test_every_jitter_has_the_mean_and_the_standard_deviation_asked_for("uniform")


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: Normal(1, -1), ValueError, "std_s"),
        (lambda: ShiftedExponential(1, 2), ValueError, "scale_s"),
        (lambda: LogNormal(0, 1), ValueError, "mean_s"),
        (lambda: Uniform(2, 1), ValueError, "low_s"),
        (lambda: Normal(1, 1).quantile_s(1.0), ValueError, "share"),
        (lambda: jitter("gauss", 1.0, 0.1), ValueError, "kind"),
        (lambda: jitter("uniform", 1.0, -0.1), ValueError, "std_s"),
        (lambda: jitter("uniform", 1.0, "8"), TypeError, "std_s"),
        (lambda: jitter("normal", 0, 0.1), ValueError, "mean_s"),
    ],
)
def test_bad_input_is_named(call, error, names):
    with pytest.raises(error, match=names):
        call()


def test_a_distribution_is_a_value():
    assert Normal(1, 0.1) == Normal(1, 0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        DISTRIBUTIONS[0].mean_s = 2


@each
@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), 10**400, "8", True, None, [1.0], np.array(["8"])], ids=repr
)
def test_bad_arguments_of_a_distribution_are_named(distribution, bad):
    for name, function in (("time_s", distribution.cdf), ("share", distribution.quantile_s)):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
            function(bad)
    with pytest.raises((TypeError, ValueError), match="^shape must be"):
        distribution.sample_s(np.random.default_rng(1), bad)
    with pytest.raises(TypeError, match="^generator must be a Generator"):
        distribution.sample_s(bad, 3)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: jitter("uniform", 1, 1), "^std_s must be at most 0.57735 s, got 1"),
        (lambda: jitter("exponential", 1, 2), "^std_s must be at most 1 s, got 2"),
        (lambda: LogNormal(1, 1e160), "^std_s must be finite"),
        (lambda: LogNormal(1e-300, 1e300), "^mean_s must be at least 1e-30"),
    ],
)
def test_a_spread_that_cannot_be_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_the_widest_uniform_jitter_starts_at_zero():
    for mean_s in (0.1, 1.0, 3.7):
        assert jitter("uniform", mean_s, mean_s / 3**0.5).low_s == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    "made", [Normal, ShiftedExponential, LogNormal, lambda one, other: Uniform(other, one)]
)
def test_numbers_of_numpy_make_the_same_value(made):
    assert hash(made(np.array(1.0), np.float64(0.5))) == hash(made(1, 0.5))


def test_a_spread_almost_without_width_is_a_step():
    for narrow in (Normal(1.0, 1e-320), ShiftedExponential(1.0, 1e-320)):
        assert narrow.cdf(np.array([0.5, 1e30])).tolist() == [0, 1]
