"""The explorers and predictions of *A step is a barrier*: what they print, in every state."""

import itertools
import math
import re

import pytest

from dtlib.views.explorers.barrier import expected_maximum, one_slow_rank
from dtlib.views.predictions.barrier import defect_in_a_job, jitter_of_many, nine_tenths

EXPLORERS = [one_slow_rank, expected_maximum]
each = pytest.mark.parametrize("explorer", EXPLORERS, ids=lambda e: e.name)


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)]


def test_ledger_L04_and_careful_18_longer_and_slower_are_shown_apart():
    longer = one_slow_rank.shown(ranks=16_384, percent=10, meaning="takes longer")
    slower = one_slow_rank.shown(ranks=16_384, percent=10, meaning="runs slower")
    assert longer.readouts["slowdown"] == "1.1000×" and slower.readouts["slowdown"] == "1.1111×"
    assert longer.readouts["step"] == "11 s" and slower.readouts["step"] == "11.111 s"
    assert slower.readouts["throughput"] == "90.00%" and longer.readouts["throughput"] == "90.91%"


def test_ledger_L05_a_dead_rank_idles_all_the_others():
    assert one_slow_rank.shown(ranks=16_384).readouts["dead"] == "16,383 GPUs"
    assert (
        one_slow_rank.shown(ranks=16_384, percent=10).readouts["waiting"]
        == "16,383 GPU\N{NON-BREAKING HYPHEN}s"
    )  # 1 s each


def test_the_bars_are_eight_ranks_that_end_together():
    shown = one_slow_rank.shown(ranks=4096, percent=20, meaning="runs slower")
    bars, [step] = shown.tables["ranks"], shown.tables["step"]
    assert len({bar["rank"] for bar in bars}) == 8
    assert {bar["to_s"] for bar in bars if bar["state"] == "waits"} == {12.5} and step[
        "ends_s"
    ] == 12.5
    assert [bar["rank"] for bar in bars if bar["state"] == "computes" and bar["to_s"] == 12.5] == [
        "3 (slow)"
    ]


def test_expected_maximum_meets_the_closed_forms():
    harmonic = math.fsum(1 / k for k in range(1, 16_385))
    shown = expected_maximum.shown(kind="exponential", percent=10, ranks=16_384)
    assert numbers(shown.readouts["step"]) == [pytest.approx(0.9 + 0.1 * harmonic, abs=5e-5)]
    bounded = expected_maximum.shown(
        kind="uniform", percent=10, ranks=8
    )  # n - 1 over n + 1 of half the width
    assert numbers(bounded.readouts["step"]) == [
        pytest.approx(1 + 0.1 * math.sqrt(3) * 7 / 9, abs=5e-5)
    ]
    normal = expected_maximum.shown(kind="normal", percent=1, ranks=131_072)
    assert numbers(normal.readouts["rare"]) == [
        pytest.approx(1.0372, abs=5e-5)
    ]  # 3.719 standard deviations


def test_lost_gpus_are_the_lost_share_of_all():
    shown = expected_maximum.shown(kind="normal", percent=2, ranks=16_384)
    [ratio], [lost] = numbers(shown.readouts["step"]), numbers(shown.readouts["lost"])
    idle, of = numbers(shown.readouts["gpus"])
    assert of == 16_384 and lost / 100 == pytest.approx(1 - 1 / ratio, abs=1e-4)
    assert idle == pytest.approx(of * lost / 100, abs=1)


@each
def test_the_sentence_holds_the_readouts(explorer):
    for at in explorer.states():
        shown = explorer.at(at)
        assert shown.alt_text.endswith(".") and "nan" not in shown.alt_text
        [step] = numbers(shown.readouts["step"])
        assert any(abs(number - step) < 0.006 for number in numbers(shown.alt_text)), shown.alt_text


@each
def test_a_larger_barrier_never_costs_less(explorer):
    ranks = next(control for control in explorer.controls if control.name == "ranks")
    others = [control for control in explorer.controls if control is not ranks]
    for values in itertools.product(*(control.values for control in others)):
        state = {control.name: value for control, value in zip(others, values, strict=True)}
        shares = [
            numbers(
                list(explorer.shown(ranks=n, **state).readouts.values())[
                    -2 if explorer is one_slow_rank else 0
                ]
            )[0]
            for n in ranks.values
        ]
        assert shares == sorted(shares)


def test_the_charts_hold_every_state():
    """No bar and no curve leaves its fixed axis."""
    assert (
        max(one_slow_rank.at(at).tables["step"][0]["ends_s"] for at in one_slow_rank.states()) < 15
    )
    assert all(
        1 < expected_maximum.at(at).tables["here"][0]["step"] < 2.2
        for at in expected_maximum.states()
    )


def test_predictions_are_computed_and_their_hints_are_wrong():
    assert nine_tenths.answer == pytest.approx(100 / 9)
    assert defect_in_a_job.answer == pytest.approx(100 * (1 - 0.9999**16_384))
    assert (
        10.78 < jitter_of_many.answer < 10.80
    )  # 3.97 standard deviations, from tables of the normal maximum
