"""The explorers and predictions of *One machine*: every state against exact fractions, and the
ledger's figures.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from fractions import Fraction

import pytest

from dtlib.facts import registry
from dtlib.formulas import memory
from dtlib.units import si
from dtlib.views import encode
from dtlib.views.explorers import one_machine as views
from dtlib.views.explorers.one_machine import does_it_fit, state_by_parts
from dtlib.views.predictions import one_machine as predictions

EXPLORERS = [does_it_fit, state_by_parts]
each = pytest.mark.parametrize("explorer", EXPLORERS, ids=lambda explorer: explorer.name)

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


def fit_disagreements() -> Iterator[str]:
    """States of does_it_fit that are not what exact fractions give."""
    for at in does_it_fit.states():
        values, shown = does_it_fit.values(at), does_it_fit.at(at)
        total_B = COUNTS[values["model"]] * sum(BYTES[values["gradients"]].values())
        device_B = MEMORY_GB[values["accelerator"]] * 10**9
        split = values["sharding"] == "split"
        each_B = Fraction(total_B, values["devices"]) if split else Fraction(total_B)
        fewest = next(
            (n for n in range(1, 300) if Fraction(total_B, n if split else 1) <= device_B), None
        )
        right = {
            "total": si(total_B),
            "each": si(float(each_B)),
            "smallest": str(fewest or "no number"),
        }
        verdict, inside = shown.tables["here"][0]["verdict"], each_B <= device_B
        if any(shown.readouts[name] != text for name, text in right.items()):
            yield f"{values}: readouts {shown.readouts}"
        if shown.readouts["fits"].startswith("yes") != inside or verdict != (
            "fits" if inside else "does not fit"
        ):
            yield f"{values}: verdict {verdict}"
        if [row["state_GB"] for row in shown.tables["state"]] != pytest.approx(
            [total_B / 1e9 / (n if split else 1) for n in views.DEVICES]
        ):
            yield f"{values}: line"
        if (
            any(text not in shown.says for text in (right["total"], right["each"], verdict))
            or (str(fewest) if (fewest or 1) > 1 else "one is enough" if fewest else "no number")
            not in shown.says
        ):
            yield f"{values}: says {shown.says}"


def parts_disagreements() -> Iterator[str]:
    """States of state_by_parts that are not what exact fractions give."""
    for at in state_by_parts.states():
        values, shown = state_by_parts.values(at), state_by_parts.at(at)
        each, divided = BYTES[values["gradients"]], DIVIDED[values["stage"]]
        rows = [row["bytes"] for row in shown.tables["segments"]]
        right = [
            Fraction(size, n if part in divided else 1)
            for n in views.RANKS
            for part, size in each.items()
        ]
        kept = sum(size for part, size in each.items() if part not in divided)
        on_rank = kept + Fraction(sum(each.values()) - kept, values["ranks"])
        count = COUNTS[values["model"]]
        if rows != pytest.approx([float(size) for size in right]):
            yield f"{values}: segments"
        if shown.tables["floor"][0]["floor"] != kept or shown.readouts["floor"] != si(kept * count):
            yield f"{values}: floor {shown.readouts['floor']}"
        if (
            shown.readouts["each"] != si(float(on_rank * count))
            or shown.readouts["each"] not in shown.says
        ):
            yield f"{values}: on each rank {shown.readouts['each']}"
        limit = (
            "more ranks change nothing"
            if not divided
            else "more ranks leave less and less"
            if not kept
            else f"; {si(kept * count)} of it, "
        )
        if limit not in shown.says:
            yield f"{values}: says {shown.says}"


def test_every_state_of_does_it_fit_agrees_with_exact_fractions():
    assert list(fit_disagreements()) == []


def test_every_state_of_state_by_parts_agrees_with_exact_fractions():
    assert list(parts_disagreements()) == []


def test_the_sentence_of_state_by_parts_at_the_extremes():
    one, many = (
        state_by_parts.shown(stage=0, ranks=1).says,
        state_by_parts.shown(stage=3, ranks=1024).says,
    )
    assert one.startswith(
        "At ZeRO stage 0 one rank alone holds 120 GB of the 120 GB of state; every part"
    )
    assert many.startswith(
        "At ZeRO stage 3 each of 1,024 ranks holds 117 MB of the 120 GB of state; every part of it "
        "is divided"
    )
    assert "; 15 GB of it, the weights, is" in state_by_parts.shown(stage=2).says
    assert "; 30 GB of it, the weights and gradients, is" in state_by_parts.shown(stage=1).says


def everything_divided(parameters, ranks, *, stage, gradient_dtype):
    return memory.sharded_state(
        parameters, ranks, stage=3 if stage else 0, gradient_dtype=gradient_dtype
    )


def test_fault_everything_divided_at_every_stage_is_caught(monkeypatch):
    monkeypatch.setattr(views, "sharded_state", everything_divided)
    assert any("segments" in text for text in parts_disagreements())


def test_fault_a_floor_for_a_ceiling_is_caught(monkeypatch):
    monkeypatch.setattr(views, "devices_needed", lambda total_B, device_B: int(total_B // device_B))
    assert any("readouts" in text for text in fit_disagreements())


def test_fault_gib_for_gb_is_caught(monkeypatch):
    monkeypatch.setattr(views, "MEMORY_B", {name: size * 2**30 for name, size in MEMORY_GB.items()})
    assert any("verdict" in text for text in fit_disagreements())


@each
def test_every_control_changes_a_readout_or_the_chart_in_every_state(explorer):
    shown = {at: encode.shown_state(explorer, at) for at in explorer.states()}
    for at, here in shown.items():
        for position, control in enumerate(explorer.controls):
            for other in range(len(control.values)):
                moved = shown[(*at[:position], other, *at[position + 1 :])]
                same = (here["tables"], here["readouts"]) == (moved["tables"], moved["readouts"])
                assert other == at[position] or not same, (
                    explorer.values(at),
                    control.name,
                    control.values[other],
                )


@each
def test_baked_states_are_few_and_small(explorer):
    assert len(list(explorer.states())) <= 1500
    assert len(gzip.compress(json.dumps(encode.baked(explorer)).encode())) <= 150_000


@each
def test_no_text_shows_nan_or_an_exponent(explorer):
    for at in explorer.states():
        shown = explorer.at(at)
        texts = [*shown.readouts.values(), shown.says]
        assert shown.says.count(". ") == 0 and shown.says.endswith(".")
        assert not any(bad in text for text in texts for bad in ("nan", "inf", "e+", "None", " -"))


@each
def test_the_columns_of_the_table_are_drawn_or_said(explorer):
    fields = {
        name for rows in explorer.at(explorer.start).tables.values() for row in rows for name in row
    }
    assert set(explorer.columns) <= fields


@pytest.mark.parametrize(
    "prediction",
    [predictions.state_of_405b, predictions.gpus_for_405b, predictions.stage_1_on_64],
    ids=lambda prediction: prediction.name,
)
def test_predictions_tell_wrong_numbers_from_the_answer(prediction):
    for wrong, text in prediction.hints:
        assert abs(wrong - prediction.answer) > prediction.tolerance * prediction.answer, text
    assert len({wrong for wrong, _ in prediction.hints}) == len(prediction.hints) >= 3


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
