"""The explorers and predictions of *One machine*: every state against exact fractions, and the
ledger's figures.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from dtlib.facts import registry
from dtlib.units import si
from dtlib.views.explorers import one_machine as views
from dtlib.views.explorers.one_machine import does_it_fit, state_by_parts
from dtlib.views.predictions import one_machine as predictions

# Published counts, typed from the sources and not read from the registry.
COUNTS = {
    "Llama 3.1 8B": 8_030_261_248,
    "Mixtral 8x7B": 46_702_792_704,
    "Llama 3.1 70B": 70_553_706_496,
    "405 billion parameters": 405_000_000_000,
    "Llama 3.1 405B, exact": 405_853_388_800,
    "DeepSeek-V3": 671_026_419_200,
    "7.5 billion (ZeRO paper)": 7_500_000_000,
}
MEMORY_GB = {"H100": 80, "H200": 141, "B200": 180, "MI300X": 192}
BYTES = {
    "bf16": {"weights": 2, "gradients": 2, "master": 4, "moments": 8},
    "fp32": {"weights": 2, "gradients": 4, "master": 4, "moments": 8},
}
DIVIDED = {
    0: (),
    1: ("master", "moments"),
    2: ("master", "moments", "gradients"),
    3: ("master", "moments", "gradients", "weights"),
}


def test_ledger_l01_sixteen_bytes_are_shown_by_part(ledger):
    rows = [
        row
        for row in state_by_parts.shown(stage=0, ranks=1).tables["segments"]
        if row["ranks"] == 1
    ]
    assert [row["bytes"] for row in rows] == [2, 2, 4, 8]
    assert sum(row["bytes"] for row in rows) == float(ledger["L01"]["value"])


def test_ledger_l02_and_l03_not_on_one_and_not_on_eighty(ledger):
    assert does_it_fit.shown().readouts["total"] == si(float(ledger["L02"]["value"])) == "6.48 TB"
    assert does_it_fit.shown().readouts["smallest"] == ledger["L03"]["value"] == "81"
    fits = {n: does_it_fit.shown(devices=n).readouts["fits"] for n in (1, 80, 81, 82)}
    assert fits == {
        1: "no, 6.4 TB too much",
        80: "no, 1 GB too much",
        81: "yes, 0 B to spare",
        82: "yes, 976 MB to spare",
    }
    assert predictions.state_of_405b.answer * 1e12 == float(ledger["L02"]["value"])
    assert predictions.gpus_for_405b.answer == int(ledger["L03"]["value"])


def test_a_whole_copy_fits_on_no_number_of_devices():
    for devices in views.DEVICES:
        shown = does_it_fit.shown(devices=devices, sharding="whole")
        assert shown.readouts["smallest"] == "no number" and shown.readouts["each"] == "6.48 TB"


def test_careful_20_gradient_dtype_and_one_rank():
    assert does_it_fit.shown(gradients="fp32").readouts["smallest"] == "92"
    assert does_it_fit.shown(model="Llama 3.1 405B, exact").readouts["smallest"] == "82"
    assert {state_by_parts.shown(stage=stage, ranks=1).readouts["each"] for stage in range(4)} == {
        "120 GB"
    }


def test_careful_21_memory_is_shown_in_both_units():
    assert does_it_fit.shown().readouts["memory"] == "80 GB = 74.5 GiB"


@pytest.mark.parametrize(
    ("stage", "each_GB", "floor"),
    [
        (0, "120 GB", "120 GB"),
        (1, "31.4 GB", "30 GB"),
        (2, "16.6 GB", "15 GB"),
        (3, "1.88 GB", "0 B"),
    ],
)
def test_the_figures_of_the_zero_paper(stage, each_GB, floor):
    readouts = state_by_parts.shown(stage=stage, ranks=64).readouts
    assert (readouts["each"], readouts["floor"]) == (each_GB, floor)


def test_every_state_of_does_it_fit_agrees_with_whole_numbers_and_fractions():
    for at in does_it_fit.states():
        values, shown = does_it_fit.values(at), does_it_fit.at(at)
        split = values["sharding"] == "split"
        total_B = COUNTS[values["model"]] * sum(BYTES[values["gradients"]].values())
        device_B = MEMORY_GB[values["accelerator"]] * 10**9
        each_B = Fraction(total_B, values["devices"] if split else 1)
        fewest = -(-total_B // device_B)
        assert shown.readouts["total"] == si(total_B), values
        assert shown.readouts["each"] == si(float(each_B)), values
        assert shown.readouts["fits"].startswith("yes" if each_B <= device_B else "no"), values
        line_GB = [total_B / 1e9 / (n if split else 1) for n in views.DEVICES]
        assert [row["state_GB"] for row in shown.tables["state"]] == pytest.approx(line_GB), values
        assert shown.tables["memory"][0]["memory_GB"] * 10**9 == device_B, values
        verdict = "fits" if each_B <= device_B else "does not fit"
        [chosen] = shown.tables["here"]
        assert (chosen["devices"], chosen["verdict"]) == (values["devices"], verdict), values
        assert chosen["chosen_GB"] == pytest.approx(float(each_B) / 1e9), values
        enough = str(fewest) if split or fewest == 1 else "no number"
        assert shown.readouts["smallest"] == enough, values
        for text in (si(total_B), si(float(each_B)), verdict):
            assert text in shown.alt_text, values
        assert ("one is enough" if enough == "1" else enough) in shown.alt_text, values


def test_every_state_of_state_by_parts_agrees_with_fractions():
    for at in state_by_parts.states():
        values, shown = state_by_parts.values(at), state_by_parts.at(at)
        each, divided = BYTES[values["gradients"]], DIVIDED[values["stage"]]
        right = [
            float(Fraction(size, n if part in divided else 1))
            for n in views.RANKS
            for part, size in each.items()
        ]
        assert [row["bytes"] for row in shown.tables["segments"]] == pytest.approx(right), values
        kept = sum(size for part, size in each.items() if part not in divided)
        on_rank = kept + Fraction(sum(each.values()) - kept, values["ranks"])
        count = COUNTS[values["model"]]
        assert shown.tables["floor"] == [{"floor": kept}], values
        assert shown.readouts["floor"] == si(kept * count), values
        assert shown.readouts["each"] == si(float(on_rank * count)), values
        assert shown.readouts["each"] in shown.alt_text, values
        limit = f"; {si(kept * count)} of it, " if kept else "more ranks leave less and less"
        assert (limit if divided else "more ranks change nothing") in shown.alt_text, values


def test_the_sentence_of_state_by_parts_at_the_extremes():
    one, many = (
        state_by_parts.shown(stage=0, ranks=1).alt_text,
        state_by_parts.shown(stage=3, ranks=1024).alt_text,
    )
    assert one.startswith(
        "At ZeRO stage 0 one rank alone holds 120 GB of the 120 GB of state; every part"
    )
    assert many.startswith(
        "At ZeRO stage 3 each of 1,024 ranks holds 117 MB of the 120 GB of state; every part of it "
        "is divided"
    )
    assert "; 15 GB of it, the weights, is" in state_by_parts.shown(stage=2).alt_text
    assert "; 30 GB of it, the weights and gradients, is" in state_by_parts.shown(stage=1).alt_text


def test_predictions_are_what_their_reasons_say():
    assert predictions.state_of_405b.answer == 405e9 * (2 + 2 + 4 + 8) / 1e12
    assert predictions.stage_1_on_64.answer == 30 + 90 / 64
    assert [wrong for wrong, _ in predictions.gpus_for_405b.hints] == [80, 11, 76, 82, 92]
    assert [wrong for wrong, _ in predictions.stage_1_on_64.hints] == [1.875, 16.640625, 120]


def test_the_measured_runs_of_the_chapter_are_the_published_figures():
    tried = registry.training_run("BigScience-181B")
    assert [tried[f"peak_memory_{m}"].value / 1e9 for m in (1, 2, 4, 8)] == [29, 37, 49, 69]
    assert tried["tp"].value * tried["pp"].value * tried["dp"].value == tried["gpus"].value == 384
    layers, embedding = 72 * 12 * 14336**2, 250_000 * 14336
    assert round((layers + embedding) / 1e9) == 181  # the log's own name for the model
    assert registry.training_run("MT-NLG-530B")["state_memory"].value == 31.640625 * 2**30
