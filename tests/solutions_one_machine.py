"""Reference solutions of the exercises of *One machine*, written as a reader would: plain
arithmetic, without dtlib.
"""

from __future__ import annotations

from typing import Any

state_70b_B = 16 * 70_553_706_496
mixtral_B = 46_702_792_704 * (2 + (4 + 12) / 64)
paper_bytes = 31.64 * 2**30 * (8 * 35) / 530e9


def sharded_bytes(parameters: int, ranks: int, stage: int) -> float:
    weights, gradients, optimizer = 2 * parameters, 2 * parameters, 12 * parameters
    if stage >= 1:
        optimizer /= ranks
    if stage >= 2:
        gradients /= ranks
    if stage >= 3:
        weights /= ranks
    return weights + gradients + optimizer


def count_parameters(config: dict[str, Any]) -> int:
    hidden, head_dim = config["hidden"], config["hidden"] // config["heads"]
    attention = 2 * hidden * hidden + 2 * hidden * config["kv_heads"] * head_dim
    layer = attention + 3 * hidden * config["ffn"] + 2 * hidden
    embeddings = (1 if config["tied"] else 2) * config["vocab"] * hidden
    return config["layers"] * layer + embeddings + hidden
