"""The time of a step: the ledger's worked example."""

import numpy as np
import pytest

from dtlib.formulas.step_time import compute_time_s, wire_share


def test_ledger_L23_compute_time_does_not_depend_on_how_the_model_is_cut():
    assert compute_time_s(405e9, 2**24, 16_384, 400e12) == pytest.approx(6.2208, rel=1e-12)
    assert compute_time_s(405e9, 131_072, 128, 400e12) == pytest.approx(
        6.2208, rel=1e-12
    )  # one replica


def test_ledger_L24_L25_share_on_the_wire():
    assert wire_share(6.2208, 32.4) == pytest.approx(0.8389, abs=1e-4)
    assert 1 - wire_share(6.2208, 32.4) == pytest.approx(0.1611, abs=1e-4)
    assert wire_share(6.2208, 0) == 0


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: compute_time_s(405e9, 2**24, 0, 4e14), ValueError, "gpus"),
        (lambda: compute_time_s(405e9, 2**24, 2.5, 4e14), TypeError, "gpus"),
        (lambda: compute_time_s(405e9, 2**24, 8, 0), ValueError, "achieved_FLOPs"),
        (lambda: compute_time_s(float("nan"), 2**24, 8, 4e14), ValueError, "parameters"),
        (lambda: wire_share(0, 1), ValueError, "compute_s"),
        (lambda: wire_share(1, -1), ValueError, "wire_s"),
    ],
)
def test_bad_input_is_named(call, error, names):
    with pytest.raises(error, match=names):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: compute_time_s(1e308, 1, 1, 1), "^parameters must be finite"),
        (lambda: compute_time_s(1, 1, 1, 5e-324), "^achieved_FLOPs must be at least 1e-30"),
        (
            lambda: wire_share(np.ones(3), np.ones(2)),
            "the shapes of compute_s .3,. and wire_s .2,. do not broadcast",
        ),
    ],
)
def test_what_does_not_fit_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
