"""Training state and its sharding: the ledger, the ZeRO paper's figures, limits and monotonicity."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib.facts.registry import accelerator, model
from dtlib.formulas import memory
from dtlib.formulas.memory import (
    GRADIENT_DTYPES,
    STAGES,
    StateBytes,
    bytes_per_parameter,
    devices_needed,
    fits,
    sharded_by_group,
    sharded_state,
    training_state,
)
from dtlib.units import GB, GiB

ROWS = (Path(__file__).parent / "data" / "ledger.csv").read_text(encoding="utf-8").splitlines()
LEDGER = {
    row["id"]: float(row["value"])
    for row in csv.DictReader(ROWS)
    if row["id"] in ("L01", "L02", "L03")
}
PAPER_GB = {
    0: 120,
    1: 31.40625,
    2: 16.640625,
    3: 1.875,
}  # ZeRO, Figure 1: 7.5e9 parameters on 64 ranks


def test_ledger_l01_bytes_per_parameter():
    each = bytes_per_parameter(gradient_dtype="bf16")
    assert each.total == LEDGER["L01"]
    assert each.parts() == {"weights": 2, "gradients": 2, "master": 4, "moments": 8}


def test_fp32_gradients_make_18():
    assert bytes_per_parameter(gradient_dtype="fp32").total == 18
    assert bytes_per_parameter(gradient_dtype="fp32").gradients == 4


def test_ledger_l02_and_l03_405b():
    parameters = model("Llama-3.1-405B")["parameters_rounded"].value
    state = training_state(parameters, gradient_dtype="bf16").total
    assert state == LEDGER["L02"]
    device = accelerator("H100-SXM").memory_B
    assert devices_needed(state, device) == LEDGER["L03"] == 81
    assert not fits(state, device, 80)
    assert fits(state, device, 81)
    assert not fits(state, device, 1)


def test_the_exact_405b_and_fp32_gradients_need_more():
    exact = model("Llama-3.1-405B")["parameters"].value
    assert devices_needed(training_state(exact, gradient_dtype="bf16").total, 80 * GB) == 82
    assert devices_needed(training_state(405e9, gradient_dtype="fp32").total, 80 * GB) == 92


def test_a_gibibyte_is_not_a_gigabyte():
    assert devices_needed(6.48e12, 80 * GB) == 81
    assert devices_needed(6.48e12, 80 * GiB) == 76


@pytest.mark.parametrize("stage", STAGES)
def test_the_stages_of_the_zero_paper(stage):
    per_rank = sharded_state(7.5e9, 64, stage=stage, gradient_dtype="bf16").total
    assert per_rank == PAPER_GB[stage] * GB
    assert sharded_state(7.5e9, 1, stage=stage, gradient_dtype="bf16").total == 120 * GB


@pytest.mark.parametrize("gradient_dtype", GRADIENT_DTYPES)
@pytest.mark.parametrize("stage", STAGES)
def test_one_rank_is_no_sharding(stage, gradient_dtype):
    alone = sharded_state(7.5e9, 1, stage=stage, gradient_dtype=gradient_dtype)
    assert alone == training_state(7.5e9, gradient_dtype=gradient_dtype)


@pytest.mark.parametrize(
    ("stage", "sharded"),
    [
        (0, set()),
        (1, {"master", "moments"}),
        (2, {"master", "moments", "gradients"}),
        (3, {"master", "moments", "gradients", "weights"}),
    ],
)
def test_each_stage_divides_one_more_part(stage, sharded):
    whole = training_state(1e9, gradient_dtype="fp32").parts()
    per_rank = sharded_state(1e9, 8, stage=stage, gradient_dtype="fp32").parts()
    assert {part for part in whole if per_rank[part] * 8 == whole[part]} == sharded
    assert all(per_rank[part] == whole[part] for part in set(whole) - sharded)


def test_every_part_is_divided_by_its_own_group():
    state = StateBytes(weights=200, gradients=200, master=400, moments=800)
    sharded = sharded_by_group(state, weights_ranks=8, gradients_ranks=4, optimizer_ranks=2)
    assert sharded == StateBytes(weights=25, gradients=50, master=200, moments=400)


counts = st.integers(1, 20_000)
sizes = st.integers(1, 10**12)


@given(sizes, counts, counts, st.sampled_from(STAGES), st.sampled_from(GRADIENT_DTYPES))
def test_memory_never_rises_with_ranks(parameters, one, other, stage, gradient_dtype):
    few, many = sorted((one, other))
    less, more = (
        sharded_state(parameters, n, stage=stage, gradient_dtype=gradient_dtype).total
        for n in (many, few)
    )
    assert less <= more


@given(sizes, counts, st.sampled_from(GRADIENT_DTYPES))
def test_memory_never_rises_with_the_stage(parameters, ranks, gradient_dtype):
    totals = [
        sharded_state(parameters, ranks, stage=s, gradient_dtype=gradient_dtype).total
        for s in STAGES
    ]
    assert totals == sorted(totals, reverse=True)


@given(sizes, counts, st.sampled_from(GRADIENT_DTYPES))
def test_the_shards_of_stage_3_add_up_to_the_whole(parameters, ranks, gradient_dtype):
    whole = training_state(parameters, gradient_dtype=gradient_dtype).total
    per_rank = sharded_state(parameters, ranks, stage=3, gradient_dtype=gradient_dtype).total
    assert per_rank * ranks == pytest.approx(whole)


@given(st.integers(1, 10**18), st.integers(1000, 10**12))
def test_devices_are_the_smallest_number_that_holds(total, device):
    devices = devices_needed(total, device)
    assert devices == -(-Fraction(total) // Fraction(device))
    assert devices * device >= total > (devices - 1) * device


def test_arrays_give_curves():
    ranks, sizes = np.array([1, 8, 64]), np.array([1e9, 7.5e9])
    for stage in STAGES:
        state = sharded_state(7.5e9, ranks, stage=stage, gradient_dtype="bf16")
        assert all(part.shape == (3,) for part in state.parts().values())
        assert state.total[2] == PAPER_GB[stage] * GB
    grid = sharded_state(sizes[:, None], ranks, stage=3, gradient_dtype="bf16").total
    assert grid.shape == (2, 3) and grid[1, 2] == 1.875 * GB
    assert devices_needed(np.array([79, 80, 81, 160]) * GB, 80 * GB).tolist() == [1, 1, 2, 2]
    assert devices_needed(np.array([81], dtype=np.uint64), 80).tolist() == [2]
    assert fits(6.48e12, 80e9, np.array([80, 81])).tolist() == [False, True]


def test_a_formula_that_forgets_a_part_is_caught(monkeypatch):
    """Seeded faults: no master copy; a gradient of the wrong size."""
    real = memory.constant
    for broken in ("master_fp32", "gradient_bf16"):
        monkeypatch.setattr(
            memory, "constant", lambda name, broken=broken: 0.0 if name == broken else real(name)
        )
        assert training_state(405e9, gradient_dtype="bf16").total != LEDGER["L02"]
        assert sharded_state(7.5e9, 64, stage=1, gradient_dtype="bf16").total != PAPER_GB[1] * GB


BAD = [0, -1, 2.5, float("nan"), float("inf"), "8", True, None]
STATE = StateBytes(2.0, 2.0, 4.0, 8.0)
CALLS = {
    "parameters": lambda bad: training_state(bad, gradient_dtype="bf16"),
    "parameters sharded": lambda bad: sharded_state(bad, 1, stage=1, gradient_dtype="bf16"),
    "ranks": lambda bad: sharded_state(1e9, bad, stage=3, gradient_dtype="bf16"),
    "stage": lambda bad: sharded_state(1e9, 8, stage=bad, gradient_dtype="bf16"),
    "weights_ranks": lambda bad: sharded_by_group(
        STATE, weights_ranks=bad, gradients_ranks=1, optimizer_ranks=1
    ),
    "gradients_ranks": lambda bad: sharded_by_group(
        STATE, weights_ranks=1, gradients_ranks=bad, optimizer_ranks=1
    ),
    "optimizer_ranks": lambda bad: sharded_by_group(
        STATE, weights_ranks=1, gradients_ranks=1, optimizer_ranks=bad
    ),
    "state": lambda bad: sharded_by_group(
        bad, weights_ranks=1, gradients_ranks=1, optimizer_ranks=1
    ),
    "gradient_dtype": lambda bad: bytes_per_parameter(gradient_dtype=bad),
    "gradient_dtype in training": lambda bad: training_state(1e9, gradient_dtype=bad),
    "total_bytes": lambda bad: devices_needed(bad, 80e9),
    "device_bytes": lambda bad: devices_needed(80e9, bad),
    "devices": lambda bad: fits(1e9, 80e9, bad),
    "total_bytes in fits": lambda bad: fits(bad, 80e9, 1),
}
ACCEPTED = {("stage", 0), ("total_bytes", 2.5), ("device_bytes", 2.5), ("total_bytes in fits", 2.5)}


@pytest.mark.parametrize(
    ("name", "bad"), [(n, b) for n in CALLS for b in BAD if (n, b) not in ACCEPTED], ids=repr
)
def test_bad_input_names_the_parameter_and_the_value(name, bad):
    with pytest.raises((TypeError, ValueError), match=f"^{name.split()[0]} must") as error:
        CALLS[name](bad)
    assert f"got {bad!r}" in str(error.value)


def test_gradient_dtype_has_no_default():
    with pytest.raises(TypeError, match="gradient_dtype"):
        training_state(1e9)


def test_whole_bytes_of_an_array_are_exact():
    assert devices_needed(np.array([2**60, 2**60 + 1]), 2**30).tolist() == [2**30, 2**30 + 1]
    assert devices_needed(np.array(2**60 + 1), np.array([2**30])).tolist() == [2**30 + 1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: devices_needed(np.array([1e30]), 1.0),
            "^total_bytes must fit in 9007199254740992 devices",
        ),
        (lambda: devices_needed(10**29, 1), "^total_bytes must fit in 9007199254740992 devices"),
        (lambda: devices_needed(10**400, 1), "^total_bytes must be finite"),
        (
            lambda: training_state(1e308, gradient_dtype="bf16"),
            "^parameters must be finite and at most",
        ),
        (lambda: training_state(1e20, gradient_dtype="bf16"), "^parameters must be at most"),
        (lambda: StateBytes("2", 2, 4, 8), "^weights must be a number in B, got '2'"),
        (
            lambda: sharded_state(np.ones(3), np.array([1, 2]), stage=1, gradient_dtype="bf16"),
            "the shapes of parameters",
        ),
    ],
)
def test_what_does_not_fit_a_number_is_named(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()
