"""Predictions of the chapter *One machine*."""

from __future__ import annotations

from dtlib.facts.registry import accelerator, fact, model
from dtlib.formulas.memory import devices_needed, sharded_state, training_state
from dtlib.units import GB, TB, GiB
from dtlib.views.prediction import Prediction

__all__ = ["state_of_405b", "gpus_for_405b", "stage_1_on_64"]

_ROUNDED = model("Llama-3.1-405B")["parameters_rounded"].value
_EXACT = model("Llama-3.1-405B")["parameters"].value
_STATE = training_state(_ROUNDED, gradient_dtype="bf16")
_FP32_STATE = training_state(_ROUNDED, gradient_dtype="fp32")
_MEMORY_B = accelerator("H100-SXM").memory_B
_ZERO_EXAMPLE = fact("zero-example.parameters").value


def _zero_GB(stage: int) -> float:
    return sharded_state(_ZERO_EXAMPLE, 64, stage=stage, gradient_dtype="bf16").total / GB


state_of_405b = Prediction(
    name="state-of-405b",
    question="A model has 405 billion parameters. Its weights are BF16 numbers of 2 bytes. How "
    "much memory must "
    "training it with Adam keep, in TB?",
    unit="TB",
    answer=_STATE.total / TB,
    because=(
        "Each parameter costs 16 bytes: weight and gradient 2 each, an FP32 master copy 4, "
        "Adam's two moments 8."
    ),
    hints=(
        (_STATE.weights / TB, "Those are the BF16 weights, an eighth of it."),
        (
            _STATE.master / TB,
            "That is one FP32 copy of the weights, or BF16 weights and gradients.",
        ),
        (
            (_STATE.weights + _STATE.gradients + _STATE.moments) / TB,
            "The FP32 master copy is missing: 4 bytes.",
        ),
        (
            (_STATE.weights + _STATE.master + _STATE.moments) / TB,
            "The gradient is missing: 2 bytes.",
        ),
        (_FP32_STATE.total / TB, "Right for FP32 gradients; the example keeps them in BF16."),
    ),
)

gpus_for_405b = Prediction(
    name="gpus-for-405b",
    question="How many GPUs of 80 GB hold 6.48 TB between them, at the least?",
    unit="GPUs",
    answer=devices_needed(_STATE.total, _MEMORY_B),
    because="6,480 / 80 leaves no remainder: the last GPU is full to the last byte.",
    hints=(
        (
            devices_needed(_STATE.total, _MEMORY_B) - 1,
            "These hold 6.40 TB, and 0.08 TB is left over.",
        ),
        (devices_needed(_STATE.weights, _MEMORY_B), "That many hold the BF16 weights alone."),
        (devices_needed(_STATE.total, 80 * GiB), "That reads 80 GB as 80 GiB, which is 85.9 GB."),
        (
            devices_needed(training_state(_EXACT, gradient_dtype="bf16").total, _MEMORY_B),
            "Right for the exact parameter count, 405,853,388,800; the question gives 6.48 TB.",
        ),
        (
            devices_needed(_FP32_STATE.total, _MEMORY_B),
            "Right for FP32 gradients; the question gives 6.48 TB.",
        ),
    ),
)

stage_1_on_64 = Prediction(
    name="stage-1-on-64",
    question="A model of 7.5 billion parameters has 120 GB of state. Stage 1 shards the optimizer "
    "state over 64 "
    "ranks. How many GB stay on each rank?",
    unit="GB",
    answer=_zero_GB(1),
    because=(
        "Weights and gradients stay whole, 4 bytes x 7.5e9 = 30 GB; the 90 GB of optimizer "
        "state become 1.4 GB."
    ),
    hints=(
        (_zero_GB(3), "That divides everything, as stage 3 does."),
        (_zero_GB(2), "That divides the gradients too, as stage 2 does."),
        (
            _zero_GB(0),
            "That is the whole state: the optimizer's three quarters of it are shared by 64 ranks.",
        ),
    ),
)
