"""The time of a step: the ledger's worked example."""

import numpy as np
import pytest

from dtlib.formulas.step_time import compute_time_s, wire_share


def test_ledger_L23_compute_time_does_not_depend_on_how_the_model_is_cut():
    assert compute_time_s(405e9, 2**24, 16_384, 400e12) == pytest.approx(6.2208, rel=1e-12)
    one_replica = compute_time_s(405e9, np.array([131_072]), 128, 400e12)
    assert one_replica == pytest.approx(6.2208, rel=1e-12)
    assert compute_time_s(1, 1, 4, 1) == 1.5


def test_ledger_L24_L25_share_on_the_wire():
    assert wire_share(6.2208, 32.4) == pytest.approx(0.8389, abs=1e-4)
    assert wire_share(6.2208, np.array([0, 6.2208])).tolist() == [0, 0.5]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: compute_time_s(405e9, 2**24, 0, 4e14), "^gpus must be at least 1"),
        (lambda: compute_time_s(405e9, 2**24, 2.5, 4e14), "^gpus must be a whole number"),
        (lambda: compute_time_s(405e9, 2**24, 8, 0), "^achieved_FLOPs must be above 0 FLOP/s"),
        (lambda: compute_time_s(1, 1, 1, 5e-324), "^achieved_FLOPs must be at least 1e-30"),
        (lambda: compute_time_s(float("nan"), 2**24, 8, 4e14), "^parameters must be finite"),
        (lambda: compute_time_s(1, 0, 8, 4e14), "^tokens must be above 0"),
        (lambda: wire_share(0, 1), "^compute_s must be above 0 s"),
        (lambda: wire_share(1, -1), "^wire_s must be at least 0 s"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()
