"""Exercises of the chapter *One machine*."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dtlib.facts import registry
from dtlib.formulas.architecture import (
    Architecture,
    Attention,
    active_parameters,
    architecture,
    parameters,
    parameters_by_part,
)
from dtlib.formulas.memory import sharded_by_group, sharded_state, training_state
from dtlib.teaching.checks import FunctionCheck, NumberCheck, define
from dtlib.units import GiB

__all__ = [
    "check_count_parameters",
    "check_bytes_per_parameter",
    "check_sharded_bytes",
    "check_stage_2_mixtral",
    "check_state_70b",
]

_70B = training_state(registry.model("Llama-3.1-70B")["parameters"].value, gradient_dtype="bf16")

check_state_70b = define(
    "one-machine-state-70b",
    chapter="one-machine",
    title="The state of a 70B model",
    kind="predict",
    minutes=3,
    points=1,
    task=(
        "Llama 3.1 70B has 70,553,706,496 parameters. How many bytes of state does it have, with "
        "BF16 gradients?"
    ),
    check=NumberCheck(
        lambda: _70B.total,
        unit="bytes",
        hints=(
            (
                lambda: _70B.total / registry.model("Llama-3.1-70B")["parameters"].value * 70e9,
                "That takes the count from the name: use the one that is given.",
            ),
            (_70B.weights, "These are the weights alone: what else is there for each parameter?"),
            (_70B.weights + _70B.gradients, "Weights and gradients, and the optimizer is missing."),
            (
                _70B.total - _70B.master,
                "Four bytes of each parameter are missing: the FP32 master copy, or one of Adam's "
                "two moments.",
            ),
            (
                _70B.total - _70B.weights,
                "Either the BF16 weights or the gradients are missing: both are there.",
            ),
            (
                training_state(
                    registry.model("Llama-3.1-70B")["parameters"].value, gradient_dtype="fp32"
                ).total,
                "That has gradients of FP32, and BF16 is asked.",
            ),
        ),
        explanation="One eighth of it is the weights that are used in the end.",
    ),
)

_MIXTRAL = architecture("Mixtral-8x7B")


def _mixtral(count: float, stage: int, gradient_dtype: str = "fp32") -> float:
    return sharded_state(count, 64, stage=stage, gradient_dtype=gradient_dtype).total


def _mixtral_by_bytes(weights: float, gradients: float, optimizer: float) -> float:
    """Bytes on a rank that keeps so many bytes of each part per parameter."""
    return parameters(_MIXTRAL) * (weights + gradients + optimizer)


check_stage_2_mixtral = define(
    "one-machine-stage-2-mixtral",
    chapter="one-machine",
    title="Mixtral at stage 2",
    kind="compute",
    minutes=4,
    points=2,
    task="Mixtral 8x7B has 46,702,792,704 parameters, of which 12,879,925,248 work on a token. It "
    "trains at ZeRO "
    "stage 2 on 64 ranks with FP32 gradients. How many bytes of state are on each rank?",
    check=NumberCheck(
        lambda: _mixtral(parameters(_MIXTRAL), 2),
        unit="bytes",
        hints=(
            (
                lambda: _mixtral(active_parameters(_MIXTRAL), 2),
                "That counts the parameters that work on one token. Which experts have to be in "
                "memory?",
            ),
            (
                lambda: _mixtral(8 * 7e9, 2),
                "Eight times 7 billion is the name; the experts share everything else.",
            ),
            (
                lambda: _mixtral(parameters(_MIXTRAL), 2, "bf16"),
                "That has BF16 gradients, and FP32 is asked.",
            ),
            (
                lambda: _mixtral_by_bytes(weights=2, gradients=4 / 64, optimizer=12),
                "That leaves the optimizer state whole: stage 2 divides what stage 1 does, and "
                "more.",
            ),
            (
                lambda: _mixtral_by_bytes(weights=4, gradients=4 / 64, optimizer=12 / 64),
                "That has weights of FP32. Only the gradients are: the weights stay BF16.",
            ),
            (
                lambda: _mixtral_by_bytes(weights=4, gradients=2 / 64, optimizer=12 / 64),
                "That swaps the two: the gradients are FP32, and the weights BF16.",
            ),
            (
                lambda: _mixtral(parameters(_MIXTRAL), 3),
                "That divides every part. Which does stage 2 leave whole?",
            ),
            (
                lambda: _mixtral(parameters(_MIXTRAL), 1),
                "That leaves the gradients whole, as stage 1 does.",
            ),
            (
                lambda: _mixtral(parameters(_MIXTRAL), 0),
                "That divides nothing: it is the whole state.",
            ),
        ),
        explanation=(
            "More than an H100 holds, and no number of ranks changes much: the weights are whole."
        ),
    ),
)

_MT_NLG = registry.training_run("MT-NLG-530B")


def _mt_nlg_bytes(state_memory_B: float, gpus: int) -> float:
    return state_memory_B * gpus / _MT_NLG["parameters_rounded"].value


def _mt_nlg_gpus() -> int:
    return _MT_NLG["tp"].value * _MT_NLG["pp"].value


check_bytes_per_parameter = define(
    "one-machine-bytes-per-parameter",
    chapter="one-machine",
    title="Which gradients?",
    kind="compute",
    minutes=4,
    points=2,
    task="Published data put 31.64 GiB of parameters, gradients and optimizer on each of 8 x 35 "
    "GPUs that hold one copy "
    "of a model of 530 billion parameters. How many bytes per parameter are these?",
    check=NumberCheck(
        lambda: _mt_nlg_bytes(_MT_NLG["state_memory"].value, _mt_nlg_gpus()),
        unit="bytes per parameter",
        hints=(
            (
                lambda: _mt_nlg_bytes(_MT_NLG["state_memory"].value / GiB * 1e9, _mt_nlg_gpus()),
                "That reads GiB as GB, and so seems to say something else about the gradients.",
            ),
            (
                lambda: _mt_nlg_bytes(_MT_NLG["state_memory"].value, 8),
                "That multiplies by the GPUs of one pipeline stage: the model is cut into all of "
                "them.",
            ),
            (
                lambda: _mt_nlg_bytes(_MT_NLG["state_memory"].value, 1),
                "That divides what one GPU holds by the parameters of the whole model.",
            ),
        ),
        explanation=(
            "FP32 gradients explain it. Read as GB, the same figure would have looked like "
            "BF16 ones."
        ),
    ),
)


_ZERO_EXAMPLE = registry.fact("zero-example.parameters").value
_8B = registry.model("Llama-3.1-8B")["parameters"].value


def _sharded(parameters: int, ranks: int, stage: int, gradient_dtype: str = "bf16") -> float:
    return sharded_state(parameters, ranks, stage=stage, gradient_dtype=gradient_dtype).total


def _own_part_only(parameters: int, ranks: int, stage: int) -> float:
    """Each stage shards its own part, and those of the earlier stages are whole again."""
    groups = [1, 1, 1, 1]
    groups[stage] = ranks
    return sharded_by_group(
        training_state(parameters, gradient_dtype="bf16"),
        optimizer_ranks=groups[1],
        gradients_ranks=groups[2],
        weights_ranks=groups[3],
    ).total


def _whole_master(parameters: int, ranks: int, stage: int) -> float:
    master = training_state(parameters, gradient_dtype="bf16").master
    return _sharded(parameters, ranks, stage) + (master - master / ranks if stage else 0)


def _whole_division(parameters: int, ranks: int, stage: int) -> float:
    """Bytes per parameter divided with //, before they are multiplied."""
    first_stages = {
        3: 2,
        2: 2,
        1: 12,
    }  # bytes of weights, gradients and optimizer, by the stage that divides them
    return parameters * sum(
        size // (ranks if stage >= first else 1) for first, size in first_stages.items()
    )


check_sharded_bytes = define(
    "one-machine-sharded-bytes",
    chapter="one-machine",
    title="ZeRO in one function",
    kind="implement",
    minutes=6,
    points=3,
    task="Write sharded_bytes(parameters, ranks, stage): bytes of state on one rank at ZeRO stage "
    "0, 1, 2 or 3, with "
    "BF16 gradients.",
    check=FunctionCheck(
        lambda parameters, ranks, stage: _sharded(parameters, ranks, stage),
        unit="bytes",
        cases=(*((_ZERO_EXAMPLE, 64, stage) for stage in range(4)), (_8B, 1, 3), (_8B, 3, 2)),
        hints=(
            (
                lambda parameters, ranks, stage: _sharded(parameters, ranks, 3 if stage else 0),
                "Everything is divided from the first stage on. What does this stage leave whole?",
            ),
            (
                lambda parameters, ranks, stage: _sharded(parameters, ranks, 3),
                "Everything is divided, whatever the stage.",
            ),
            (
                lambda parameters, ranks, stage: _sharded(parameters, ranks, min(stage + 1, 3)),
                "One stage too far: stage 0 divides nothing.",
            ),
            (
                lambda parameters, ranks, stage: _sharded(parameters, ranks, 0),
                "Nothing is divided at any stage.",
            ),
            (_own_part_only, "A stage divides its own part and those of the stages before it."),
            (
                _whole_master,
                "The optimizer state is more than the moments: the master weights belong to it.",
            ),
            (
                _whole_division,
                "The optimizer state is gone altogether. (12 // ranks is none for many ranks: "
                "divide with /.)",
            ),
            (
                lambda parameters, ranks, stage: _sharded(parameters, ranks, stage) * ranks,
                "That is the sum over all ranks. What is on one of them?",
            ),
            (
                lambda parameters, ranks, stage: _sharded(parameters, ranks, stage, "fp32"),
                "That has gradients of FP32, and BF16 is asked.",
            ),
        ),
        explanation=(
            "On a single rank every stage keeps the whole state: there is nobody to share it with."
        ),
    ),
)


def _model(config: dict[str, Any]) -> Architecture:
    head_dim = config["hidden"] // config["heads"]
    attention = Attention(heads=config["heads"], kv_heads=config["kv_heads"], head_dim=head_dim)
    sizes = {key: config[key] for key in ("layers", "hidden", "vocab", "ffn", "tied")}
    return Architecture(attention=attention, **sizes)


def _count(config: dict[str, Any]) -> int:
    return parameters(_model(config))


def _without_norms(config: dict[str, Any]) -> int:
    return _count(config) - parameters_by_part(_model(config), active=False)["norms"]


def _config(name: str, **changes: Any) -> dict[str, Any]:
    facts = registry.model(name)
    keys = ("layers", "hidden", "vocab", "ffn", "heads", "kv_heads", "tied")
    return {key: facts[key].value for key in keys} | changes


check_count_parameters = define(
    "one-machine-count-parameters",
    chapter="one-machine",
    title="Count the parameters",
    kind="implement",
    minutes=8,
    points=4,
    task="Write count_parameters(config): the parameters of a model with grouped-query attention, "
    "gated MLPs and RMS "
    "norms.",
    check=FunctionCheck(
        _count,
        cases=(
            (_config("Llama-3.1-8B"),),
            (_config("Llama-2-70B"),),
            (_config("Llama-3.1-8B", tied=True),),
        ),
        hints=(
            (
                lambda config: _count({**config, "kv_heads": config["heads"]}),
                "Keys and values are made as wide as queries. How many heads do they have?",
            ),
            (
                lambda config: parameters(replace(_model(config), gated=False)),
                "The MLP has two matrices. What does the gate need?",
            ),
            (
                lambda config: _count({**config, "tied": True}),
                "Embedding and head are two matrices where the head is not tied, and one is "
                "counted.",
            ),
            (
                lambda config: _count({**config, "tied": False}),
                "The head is tied here: its matrix is the embedding again.",
            ),
            (
                _without_norms,
                "The norms are missing: they are vectors, and parameters all the same.",
            ),
            (
                lambda config: _count(config) - config["layers"] * config["hidden"],
                "A layer has two norms, one before attention and one before the MLP, and one of "
                "them is counted.",
            ),
            (
                lambda config: _count(config) - config["hidden"],
                "One norm is missing: the one after the last layer.",
            ),
            (
                lambda config: _count(config) - config["layers"] * config["hidden"] ** 2,
                "Attention has four matrices, and one as large as the query's is missing.",
            ),
        ),
        explanation="These are the published counts, to the last parameter.",
    ),
)
