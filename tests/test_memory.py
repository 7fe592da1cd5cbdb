"""Training state and its sharding: the ledger, the ZeRO paper's figures, limits, monotonicity."""

from __future__ import annotations

import csv
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtlib.facts.registry import accelerator, model
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
# ZeRO, Figure 1: 7.5e9 parameters on 64 ranks.
PAPER_GB = {0: 120, 1: 31.40625, 2: 16.640625, 3: 1.875}
DIVIDED = {
    0: set(),
    1: {"master", "moments"},
    2: {"master", "moments", "gradients"},
    3: {"master", "moments", "gradients", "weights"},
}


def test_ledger_l01_bytes_per_parameter():
    each = bytes_per_parameter(gradient_dtype="bf16")
    assert each.total == LEDGER["L01"]
    assert each.parts() == {"weights": 2, "gradients": 2, "master": 4, "moments": 8}
    assert bytes_per_parameter(gradient_dtype="fp32").parts() == each.parts() | {"gradients": 4}


def test_ledger_l02_and_l03_405b():
    parameters = model("Llama-3.1-405B")["parameters_rounded"].value
    state = training_state(parameters, gradient_dtype="bf16").total
    assert state == LEDGER["L02"]
    device = accelerator("H100-SXM").memory_B
    assert devices_needed(state, device) == LEDGER["L03"] == 81
    assert [fits(state, device, n) for n in (1, 80, 81, 82)] == [False, False, True, True]


def test_the_exact_405b_fp32_gradients_and_gibibytes_need_other_numbers():
    exact = model("Llama-3.1-405B")["parameters"].value
    assert devices_needed(training_state(exact, gradient_dtype="bf16").total, 80 * GB) == 82
    assert devices_needed(training_state(405e9, gradient_dtype="fp32").total, 80 * GB) == 92
    assert devices_needed(6.48e12, 80 * GiB) == 76


@pytest.mark.parametrize("stage", STAGES)
def test_the_stages_of_the_zero_paper(stage):
    """The paper's totals, and each part by itself: divided or whole."""
    per_rank = sharded_state(7.5e9, 64, stage=stage, gradient_dtype="bf16")
    assert per_rank.total == PAPER_GB[stage] * GB
    for gradient_dtype in GRADIENT_DTYPES:
        whole = training_state(7.5e9, gradient_dtype=gradient_dtype).parts()
        alone, many = (
            sharded_state(7.5e9, n, stage=stage, gradient_dtype=gradient_dtype).parts()
            for n in (1, 64)
        )
        assert alone == whole
        assert {part for part in whole if many[part] * 64 == whole[part]} == DIVIDED[stage]
        assert {part for part in whole if many[part] == whole[part]} == set(whole) - DIVIDED[stage]


def test_every_part_is_divided_by_its_own_group():
    state = StateBytes(weights=200, gradients=200, master=400, moments=800)
    sharded = sharded_by_group(state, weights_ranks=8, gradients_ranks=4, optimizer_ranks=2)
    assert sharded == StateBytes(weights=25, gradients=50, master=200, moments=400)
    assert state.total == 1600
    with pytest.raises(FrozenInstanceError):
        state.weights = 1


@given(
    st.integers(1, 10**12),
    st.integers(1, 20_000),
    st.integers(1, 20_000),
    st.sampled_from(GRADIENT_DTYPES),
)
def test_memory_never_rises_with_ranks_or_stage(parameters, one, other, gradient_dtype):
    ranks = np.array(sorted((one, other)))
    totals = np.array(
        [
            sharded_state(parameters, ranks, stage=stage, gradient_dtype=gradient_dtype).total
            for stage in STAGES
        ]
    )
    assert (np.diff(totals, axis=0) <= 0).all() and (np.diff(totals, axis=1) <= 0).all()
    assert totals[3] * ranks == pytest.approx(totals[0])  # the shards of stage 3 add up


@given(st.integers(1, 10**18), st.integers(1000, 10**12))
def test_devices_are_the_smallest_number_that_holds(total, device):
    devices = devices_needed(total, device)
    assert devices == -(-Fraction(total) // Fraction(device)) and type(devices) is int
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
    assert devices_needed(np.array([81.0]), 80).dtype == np.int64
    assert fits(6.48e12, 80e9, np.array([80, 81])).tolist() == [False, True]


def test_whole_bytes_are_exact_at_any_size():
    assert devices_needed(np.array([2**60, 2**60 + 1]), 2**30).tolist() == [2**30, 2**30 + 1]
    assert devices_needed(np.array(2**60 + 1), np.array([2**30])).tolist() == [2**30 + 1]
    assert devices_needed(np.array([2**63 + 1], dtype=np.uint64), 2**33).tolist() == [2**30 + 1]
    assert devices_needed(2**53, 1) == 2**53


STATE = StateBytes(2.0, 2.0, 4.0, 8.0)
GROUPS = {"weights_ranks": 1, "gradients_ranks": 1, "optimizer_ranks": 1}
CALLS = {
    "parameters": lambda bad: training_state(bad, gradient_dtype="bf16"),
    "parameters sharded": lambda bad: sharded_state(bad, 1, stage=1, gradient_dtype="bf16"),
    "ranks": lambda bad: sharded_state(1e9, bad, stage=3, gradient_dtype="bf16"),
    "stage": lambda bad: sharded_state(1e9, 8, stage=bad, gradient_dtype="bf16"),
    "weights_ranks": lambda bad: sharded_by_group(STATE, **GROUPS | {"weights_ranks": bad}),
    "gradients_ranks": lambda bad: sharded_by_group(STATE, **GROUPS | {"gradients_ranks": bad}),
    "optimizer_ranks": lambda bad: sharded_by_group(STATE, **GROUPS | {"optimizer_ranks": bad}),
    "state": lambda bad: sharded_by_group(bad, **GROUPS),
    "gradient_dtype": lambda bad: bytes_per_parameter(gradient_dtype=bad),
    "gradient_dtype in training": lambda bad: training_state(1e9, gradient_dtype=bad),
    "total_bytes": lambda bad: devices_needed(bad, 80e9),
    "device_bytes": lambda bad: devices_needed(80e9, bad),
    "devices": lambda bad: fits(1e9, 80e9, bad),
    "total_bytes in fits": lambda bad: fits(bad, 80e9, 1),
}
ACCEPTED = {("stage", 0), ("total_bytes", 2.5), ("device_bytes", 2.5), ("total_bytes in fits", 2.5)}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_names_the_parameter_and_the_value(name):
    for bad in (0, -1, 2.5, float("nan"), float("inf"), "8", True, None, np.timedelta64(8, "s")):
        if (name, bad) not in ACCEPTED:
            with pytest.raises((TypeError, ValueError), match=f"^{name.split()[0]} must") as error:
                CALLS[name](bad)
            assert f"got {bad!r}" in str(error.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: training_state(1e9), "gradient_dtype"),  # has no default
        (
            lambda: devices_needed(np.array([1e30]), 1.0),
            r"^total_bytes must fit in 9007199254740992 devices, got array\(\[1\.e\+30\]\) for "
            r"device_bytes of 1\.0$",
        ),
        (lambda: devices_needed(2**53 + 1, 1), "^total_bytes must fit in 9007199254740992 devices"),
        (lambda: devices_needed(10**400, 1), "^total_bytes must be finite"),
        (
            lambda: training_state(1e308, gradient_dtype="bf16"),
            "^parameters must be finite and at most",
        ),
        (lambda: training_state(1e20, gradient_dtype="bf16"), "^parameters must be at most"),
        (lambda: StateBytes("2", 2, 4, 8), "^weights must be a number in B, got '2'"),
        (
            lambda: StateBytes(np.ones(3), np.ones(2), 4, 8),
            r"^the shapes of weights \(3,\) and gradients \(2,\) do not broadcast",
        ),
        (
            lambda: sharded_by_group(
                StateBytes(np.ones(3), 2, 4, 8), **GROUPS | {"weights_ranks": np.array([1, 2])}
            ),
            r"^the shapes of state \(3,\) and weights_ranks \(2,\) do not broadcast",
        ),
        (
            lambda: sharded_state(np.ones(3), np.array([1, 2]), stage=1, gradient_dtype="bf16"),
            r"^the shapes of parameters \(3,\) and ranks \(2,\) do not broadcast",
        ),
    ],
)
def test_what_does_not_fit_a_number_or_a_shape_is_named(call, says):
    with pytest.raises((TypeError, ValueError), match=says):
        call()
