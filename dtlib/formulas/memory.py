"""Memory of the training state: what mixed-precision Adam keeps per parameter, and how ZeRO shards
it.

The state is weights, gradients, an FP32 master copy and Adam's two moments. Activations, gathered
weights and buffers come on top. All results are bytes; 80 GB is 80e9 of them, 80 GiB are 85.9e9
(see ``dtlib.units``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.arguments import (
    LARGEST_COUNT,
    broadcastable,
    broadcasting,
    choice,
    instance,
    real_number,
    shown,
    store,
    whole_number,
)
from dtlib.facts.registry import constant

__all__ = [
    "GRADIENT_DTYPES",
    "STAGES",
    "StateBytes",
    "bytes_per_parameter",
    "devices_needed",
    "fits",
    "sharded_by_group",
    "sharded_state",
    "training_state",
]

GRADIENT_DTYPES = ("bf16", "fp32")
STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class StateBytes:
    """Bytes of the training state by part: numbers, or arrays whose shapes broadcast."""

    weights: Any
    gradients: Any
    master: Any
    moments: Any

    def __post_init__(self) -> None:
        broadcastable(**self.parts())
        parts = {part: real_number(part, value, unit="B") for part, value in self.parts().items()}
        store(self, **parts)

    @property
    def total(self) -> Any:
        """All four parts together."""
        return self.weights + self.gradients + self.master + self.moments

    def parts(self) -> dict[str, Any]:
        """The parts by name, in the order of the fields."""
        return dict(vars(self))


def _computed(weights: Any, gradients: Any, master: Any, moments: Any) -> StateBytes:
    """A StateBytes of values that were computed here, from checked arguments: not checked again."""
    state = object.__new__(StateBytes)
    store(state, weights=weights, gradients=gradients, master=master, moments=moments)
    return state


def _whole(name: str, value: Any) -> Any:
    """A whole number from 1 to 2**53 (or an array of them) that may be written as a float, such as
    405e9.
    """
    number = real_number(name, value, zero=False, at_most=LARGEST_COUNT)
    if np.any(number % 1):
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    return number


def bytes_per_parameter(*, gradient_dtype: str) -> StateBytes:
    """Bytes per parameter of mixed-precision Adam: BF16 weights, FP32 master and moments, gradients
    as said.

    >>> [bytes_per_parameter(gradient_dtype=dtype).total for dtype in GRADIENT_DTYPES]
    [16.0, 18.0]
    """
    gradient_dtype = choice("gradient_dtype", gradient_dtype, GRADIENT_DTYPES)
    return _computed(
        weights=constant("weight_bf16"),
        gradients=constant(f"gradient_{gradient_dtype}"),
        master=constant("master_fp32"),
        moments=constant("moments_adam"),
    )


def training_state(parameters: Any, *, gradient_dtype: str) -> StateBytes:
    """Bytes of the state of a model of ``parameters`` (a whole number, or an array of them), not
    sharded.

    >>> training_state(405e9, gradient_dtype="bf16").total
    6480000000000.0
    """
    parameters = _whole("parameters", parameters)
    each = bytes_per_parameter(gradient_dtype=gradient_dtype)
    return _computed(**{part: parameters * size for part, size in each.parts().items()})


@broadcasting
def sharded_by_group(
    state: StateBytes, *, weights_ranks: Any, gradients_ranks: Any, optimizer_ranks: Any
) -> StateBytes:
    """Bytes per rank when each part is sharded over a group of its own; a group of 1 is not
    sharded.

    Weights may be cut over the ranks of a node, for one, and the optimizer over all ranks.
    """
    instance("state", state, StateBytes, such_as="training_state(...)")
    ranks = {
        "weights_ranks": whole_number("weights_ranks", weights_ranks, array=True),
        "gradients_ranks": whole_number("gradients_ranks", gradients_ranks, array=True),
        "optimizer_ranks": whole_number("optimizer_ranks", optimizer_ranks, array=True),
    }
    broadcastable(state=state.total, **ranks)
    return _sharded(state, *ranks.values())


def _sharded(state: StateBytes, weights: Any, gradients: Any, optimizer: Any) -> StateBytes:
    """Each part over the ranks that share it; these are checked."""
    return _computed(
        weights=state.weights / weights,
        gradients=state.gradients / gradients,
        master=state.master / optimizer,
        moments=state.moments / optimizer,
    )


@broadcasting
def sharded_state(parameters: Any, ranks: Any, *, stage: int, gradient_dtype: str) -> StateBytes:
    """Bytes of training state per rank under ZeRO: each stage divides one more part by the
    data-parallel ``ranks``.

    Stage 0 replicates everything; 1 shards the optimizer (master and moments), 2 the gradients too,
    3 the weights too. The division is exact, P/n, as in the ZeRO paper's table; an implementation
    pads its flat buffers, which adds at most a few elements per rank and buffer. ``parameters`` and
    ``ranks`` may be arrays that broadcast. Source: Rajbhandari et al. 2020, Figure 1.

    >>> [sharded_state(7.5e9, 64, stage=s, gradient_dtype="bf16").total / 1e9 for s in STAGES]
    [120.0, 31.40625, 16.640625, 1.875]
    """
    state = training_state(parameters, gradient_dtype=gradient_dtype)
    ranks = whole_number("ranks", ranks, array=True)
    stage = choice("stage", stage, STAGES)
    alone = ranks // ranks  # groups of one, in the shape of ranks
    return _sharded(
        state,
        weights=ranks if stage >= 3 else alone,
        gradients=ranks if stage >= 2 else alone,
        optimizer=ranks if stage >= 1 else alone,
    )


def _bytes(name: str, value: Any) -> Any:
    """A number of bytes above 0; whole numbers (of an array, too) become Python's, which are exact
    at any size.
    """
    number = real_number(name, value, unit="B", zero=False)
    return np.asarray(value).astype(object)[()] if np.asarray(value).dtype.kind in "iuO" else number


@broadcasting
def devices_needed(total_bytes: Any, device_bytes: Any) -> Any:
    """Smallest number of devices of ``device_bytes`` whose memory adds up to ``total_bytes``: a
    ceiling, exactly.

    Whole numbers stay whole numbers, so no rounding can add or lose a device. More than 2**53
    devices are refused.

    >>> devices_needed(6_480_000_000_000, 80_000_000_000)
    81
    """
    devices = -(-_bytes("total_bytes", total_bytes) // _bytes("device_bytes", device_bytes))
    if np.any(devices > LARGEST_COUNT):
        raise ValueError(
            f"total_bytes must fit in {LARGEST_COUNT} devices, got {shown(total_bytes)} for "
            "device_bytes of "
            f"{shown(device_bytes)}"
        )
    return np.asarray(devices).astype(np.int64) if np.ndim(devices) else int(devices)


@broadcasting
def fits(total_bytes: Any, device_bytes: Any, devices: Any) -> Any:
    """Whether ``total_bytes`` fit in the memory of ``devices`` devices together.

    >>> fits(6.48e12, 80e9, 80), fits(6.48e12, 80e9, 81)
    (False, True)
    """
    return devices_needed(total_bytes, device_bytes) <= whole_number("devices", devices, array=True)
