"""Every formula, whatever kind of number it is given and however strict numpy is: the right value
or a named error.
"""

from __future__ import annotations

from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dtlib.formulas.architecture import (
    architecture,
    forward_flops_per_token,
    six_n_flops,
    tensor_shard,
    training_flops_per_token,
)
from dtlib.formulas.barrier import (
    expected_maximum_s,
    expected_step_time_s,
    idle_ranks_after_failure,
    probability_of_straggler,
    slowdown_of_longer_time,
    slowdown_of_lower_rate,
    step_time_s,
    throughput_kept,
    waiting_s,
    waiting_share,
)
from dtlib.formulas.jitter import JITTERS, LogNormal, Normal, ShiftedExponential, Uniform, jitter
from dtlib.formulas.memory import (
    StateBytes,
    devices_needed,
    fits,
    sharded_by_group,
    sharded_state,
    training_state,
)
from dtlib.formulas.partition import chunk_bounds, partition
from dtlib.formulas.step_time import compute_time_s, wire_share
from dtlib.formulas.utilization import mfu

LLAMA, NORMAL, STATE = architecture("Llama-3.1-8B"), Normal(1.0, 0.125), StateBytes(2, 2, 4, 8)
BF16 = {"gradient_dtype": "bf16"}
# Each formula with its numbers, the others of its arguments, and whether the numbers may be arrays.
FORMULAS: list[tuple[Any, dict[str, Any], dict[str, Any], bool]] = [
    (training_state, {"parameters": 100}, BF16, True),
    (sharded_state, {"parameters": 100, "ranks": 8}, BF16 | {"stage": 2}, True),
    (
        sharded_by_group,
        {"weights_ranks": 2, "gradients_ranks": 4, "optimizer_ranks": 8},
        {"state": STATE},
        True,
    ),
    (StateBytes, {"weights": 2, "gradients": 2.5, "master": 4, "moments": 8}, {}, True),
    (devices_needed, {"total_bytes": 100, "device_bytes": 8}, {}, True),
    (devices_needed, {"total_bytes": 100.5, "device_bytes": 0.5}, {}, True),
    (fits, {"total_bytes": 100, "device_bytes": 8, "devices": 13}, {}, True),
    (slowdown_of_longer_time, {"longer_by": 0.25}, {}, True),
    (slowdown_of_lower_rate, {"rate": 0.75}, {}, True),
    (idle_ranks_after_failure, {"ranks": 100}, {}, True),
    (expected_maximum_s, {"ranks": 100}, {"distribution": NORMAL}, True),
    (throughput_kept, {"ranks": 100}, {"distribution": NORMAL}, True),
    (probability_of_straggler, {"slow_share": 0.125, "ranks": 100}, {}, True),
    (
        expected_step_time_s,
        {"usual_time_s": 10, "slowdown": 1.5, "slow_share": 0.125, "ranks": 4},
        {},
        True,
    ),
    (NORMAL.cdf, {"time_s": 1.125}, {}, True),
    (NORMAL.quantile_s, {"share": 0.75}, {}, True),
    (forward_flops_per_token, {"seq_len": 100}, {"arch": LLAMA, "causal": np.True_}, True),
    (training_flops_per_token, {"seq_len": 100}, {"arch": LLAMA, "causal": np.False_}, True),
    (six_n_flops, {"parameters": 100, "tokens": 100}, {}, True),
    (compute_time_s, {"parameters": 100, "tokens": 9, "gpus": 8, "achieved_FLOPs": 7}, {}, True),
    (wire_share, {"compute_s": 6.5, "wire_s": 32}, {}, True),
    (mfu, {"achieved_FLOPs": 42, "peak_FLOPs": 100}, {}, True),
    (Normal, {"mean_s": 8, "std_s": 0.5}, {}, False),
    (LogNormal, {"mean_s": 8, "std_s": 0.5}, {}, False),
    (ShiftedExponential, {"mean_s": 8, "scale_s": 0.5}, {}, False),
    (Uniform, {"low_s": 0.5, "high_s": 8}, {}, False),
    *((jitter, {"mean_s": 8, "std_s": 0.5}, {"kind": kind}, False) for kind in JITTERS),
    (tensor_shard, {"tp": 8}, {"arch": LLAMA}, False),
    (partition, {"items": 100, "parts": 7}, {}, False),
    (chunk_bounds, {"size": 100, "chunks": 7}, {}, False),
]
OF_ARRAYS = (step_time_s, waiting_s, waiting_share)  # whose argument is always an array
NO_NUMBERS = {  # formulas and types of the modules that take no number, or are tested as a type
    "Distribution",
    "bytes_per_parameter",
    "Architecture",
    "Attention",
    "Experts",
    "LatentAttention",
    "TensorShard",
    "active_parameters",
    "architecture",
    "check_counts",
    "normal_tail",
    "parameters",
    "parameters_by_part",
}
MODULES = (
    "architecture",
    "barrier",
    "blocks",
    "jitter",
    "memory",
    "partition",
    "step_time",
    "utilization",
)


@pytest.fixture(autouse=True)
def strict():
    """Numpy raises where it would warn, and pytest raises at every warning."""
    with np.errstate(all="raise"):
        yield


def kinds(number: float) -> list[Any]:
    """The same number in every type that holds it exactly."""
    dtypes = ("float16", "float32", "longdouble")
    if number == int(number):
        dtypes = ("int8", "uint8", "int64", "uint64")
    return [np.dtype(dtype).type(number) for dtype in dtypes]


def parts(result: Any) -> list[np.ndarray]:
    """A result, or the fields of one."""
    fields = vars(result).values() if hasattr(result, "__dataclass_fields__") else [result]
    return [np.asarray(field) for field in fields]


def test_every_public_formula_is_here():
    listed = {getattr(function, "__name__", "") for function, *_ in FORMULAS}
    listed |= {function.__name__ for function in OF_ARRAYS} | NO_NUMBERS
    for name in MODULES:
        module = import_module(f"dtlib.formulas.{name}")
        public = {name for name in module.__all__ if callable(getattr(module, name))}
        assert public <= listed, public - listed


@pytest.mark.parametrize(
    ("function", "numbers", "others", "array"),
    FORMULAS,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_narrow_number_gives_what_a_wide_one_gives(function, numbers, others, array):
    right = parts(function(**numbers, **others))
    for name, number in numbers.items():
        for narrow in kinds(number):
            for given in (narrow, np.array(narrow)):
                got = parts(function(**numbers | {name: given}, **others))
                assert [part.tolist() for part in got] == [part.tolist() for part in right]
            if array:
                curve = parts(function(**numbers | {name: np.array([narrow, narrow])}, **others))
                assert np.hstack([part.ravel()[0] for part in curve]) == pytest.approx(
                    np.hstack(right), rel=1e-14
                )


@pytest.mark.parametrize(
    ("function", "numbers", "others"),
    [
        (function, numbers, others)
        for function, numbers, others, array in FORMULAS
        if array and len(numbers) > 1
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_shapes_that_do_not_broadcast_are_named(function, numbers, others):
    for (one, a), (other, b) in combinations(numbers.items(), 2):
        with pytest.raises(ValueError) as error:
            function(**numbers | {one: np.full(3, a), other: np.full(2, b)}, **others)
        assert str(error.value) == f"the shapes of {one} (3,) and {other} (2,) do not broadcast"


def test_times_of_any_type_are_times():
    for dtype in ("int8", "uint8", "float16", "float32", "longdouble"):
        times = np.array([[100, 100, 104]], dtype=dtype)
        assert step_time_s(times) == 104 and waiting_s(times).tolist() == [[4, 4, 0]]
        assert waiting_share(times)[0] == pytest.approx(8 / 312)


def test_the_smallest_and_the_largest_numbers_do_not_trip():
    tiny, huge, most = 5e-324, 1e30, 2**53
    assert waiting_share(np.array([tiny, tiny])) == 0
    groups = {"weights_ranks": 8, "gradients_ranks": 8, "optimizer_ranks": np.array([most])}
    state = StateBytes(np.array([tiny]), tiny, 0, huge)
    assert sharded_by_group(state, **groups).weights.tolist() == [0]
    assert sharded_by_group(state, **groups).moments.tolist() == [huge / most]
    assert expected_step_time_s(np.array([tiny]), 1, 1e-300, 1)[0] == tiny
    assert probability_of_straggler(np.array([tiny, 1e-300]), 1)[1] == 1e-300
    assert mfu(np.array([1e-30]), huge)[0] == pytest.approx(1e-60)
    assert wire_share(huge, np.array([tiny]))[0] == 0
    assert six_n_flops(np.array([huge]), huge)[0] == pytest.approx(6e60)
    for of in (
        *(jitter(kind, 1.0, 0.125) for kind in JITTERS),
        *(jitter(kind, 1.0, 0.0) for kind in JITTERS),
        LogNormal(1e-30, huge),
        Normal(1.0, 1e-320),
    ):
        maxima = expected_maximum_s(of, np.array([1, 2, 16_384, most]))
        assert np.isfinite(maxima).all() and maxima[0] == pytest.approx(of.mean_s)
        shares = of.cdf(np.array([-huge, -tiny, 0.0, tiny, huge]))
        assert shares[0] == 0 and shares[-1] == 1
        assert np.isfinite(of.quantile_s(np.array([1e-30, 0.5, 1 - 2**-53]))).all()


@pytest.mark.parametrize(
    "bad", [np.timedelta64(5, "s"), np.datetime64("2026-01-01"), np.array(5, dtype="m8[ns]")]
)
def test_a_duration_is_no_number(bad):
    for function, numbers, others, _ in FORMULAS:
        for name in numbers:
            with pytest.raises(TypeError, match=f"^{name} must be a (whole )?number"):
                function(**numbers | {name: bad}, **others)


def test_choices_and_flags_of_numpy_are_taken():
    right = sharded_state(100, 8, stage=2, gradient_dtype="fp32")
    for stage in (np.int64(2), np.uint8(2), np.array(2)):
        assert sharded_state(100, 8, stage=stage, gradient_dtype=np.str_("fp32")) == right
    assert jitter(np.str_("normal"), 1, 0.1) == jitter("normal", 1, 0.1)
    for bad in (2.0, np.float64(2.0), np.timedelta64(2), np.array([2]), np.True_, True, "2"):
        with pytest.raises(ValueError, match="^stage must be one of 0, 1, 2, 3, got"):
            sharded_state(100, 8, stage=bad, gradient_dtype="fp32")
