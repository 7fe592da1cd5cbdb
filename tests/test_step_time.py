"""The time of a step: the ledger's worked example, and waiting counted rank by rank."""

import numpy as np
import pytest

from dtlib.formulas import step_time
from dtlib.formulas.step_time import JITTERS, compute_time_s, jitter, waiting_s, waiting_share, wire_share


def test_ledger_L23_compute_time_does_not_depend_on_how_the_model_is_cut():
    assert compute_time_s(405e9, 2**24, 16_384, 400e12) == pytest.approx(6.2208, rel=1e-12)
    assert compute_time_s(405e9, 131_072, 128, 400e12) == pytest.approx(6.2208, rel=1e-12)  # one replica


def test_ledger_L24_L25_share_on_the_wire():
    assert wire_share(6.2208, 32.4) == pytest.approx(0.8389, abs=1e-4)
    assert 1 - wire_share(6.2208, 32.4) == pytest.approx(0.1611, abs=1e-4)
    assert wire_share(6.2208, 0) == 0


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_waiting_is_what_a_loop_over_ranks_finds(ranks):
    times = np.random.default_rng(ranks).uniform(1, 2, (3, ranks))
    waits, shares = waiting_s(times), waiting_share(times)
    for step, row in enumerate(times.tolist()):
        longest = sorted(row)[-1]
        assert waits[step].tolist() == pytest.approx([longest - time for time in row])
        assert shares[step] == pytest.approx(sum(longest - time for time in row) / (longest * ranks))
    assert waits.min() == 0 and (ranks > 1 or shares.max() == 0)


def test_a_step_that_ends_with_its_mean_is_caught(monkeypatch):
    monkeypatch.setattr(step_time.barrier, "step_time_s", lambda times: np.mean(times, axis=-1))
    with pytest.raises(AssertionError):
        test_waiting_is_what_a_loop_over_ranks_finds(7)


@pytest.mark.parametrize("kind", JITTERS)
def test_every_jitter_has_the_mean_and_the_standard_deviation_asked_for(kind):
    drawn = jitter(kind, 10.0, 0.5).sample_s(np.random.default_rng(1), 200_000)
    assert drawn.mean() == pytest.approx(10.0, abs=0.006) and drawn.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(("call", "error", "names"), [
    (lambda: compute_time_s(405e9, 2**24, 0, 4e14), ValueError, "gpus"),
    (lambda: compute_time_s(405e9, 2**24, 2.5, 4e14), TypeError, "gpus"),
    (lambda: compute_time_s(405e9, 2**24, 8, 0), ValueError, "achieved_FLOPs"),
    (lambda: compute_time_s(float("nan"), 2**24, 8, 4e14), ValueError, "parameters"),
    (lambda: wire_share(0, 1), ValueError, "compute_s"),
    (lambda: wire_share(1, -1), ValueError, "wire_s"),
    (lambda: waiting_s([]), ValueError, "times_s"),
    (lambda: waiting_s([1, -1]), ValueError, "times_s"),
    (lambda: jitter("gauss", 1.0, 0.1), ValueError, "kind"),
    (lambda: jitter("uniform", 1.0, -0.1), ValueError, "std_s"),
    (lambda: jitter("uniform", 1.0, "8"), TypeError, "std_s"),
    (lambda: jitter("normal", 0, 0.1), ValueError, "mean_s"),
])
def test_bad_input_is_named(call, error, names):
    with pytest.raises(error, match=names):
        call()
