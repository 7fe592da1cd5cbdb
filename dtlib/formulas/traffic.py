"""What one GPU sends in a training step for each kind of parallelism.

Activations and gradients have 2 bytes a value (BF16). A ring all-reduce or its like moves 2 (d -
1)/d of its payload among d ranks. Whether the traffic hides behind computing is not asked here.

Nothing is cut into more parts than it has: a tensor rank has a column of every layer, a pipeline
stage a layer, a replica a token of every step, and each GPU a parameter.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from dtlib.arguments import broadcasting, choice, divisible, real_number, shown, whole_number
from dtlib.formulas.collectives import Numbers, bytes_sent
from dtlib.formulas.hierarchy import sent_by_tier

__all__ = [
    "ALL_REDUCES_PER_LAYER",
    "BYTES_PER_VALUE",
    "KINDS",
    "Traffic",
    "activation_bytes",
    "data_bytes",
    "gradient_bytes",
    "pipeline_bytes",
    "tensor_bytes",
    "tensor_payload_bytes",
    "traffic",
]

ALL_REDUCES_PER_LAYER = (
    4  # two in the forward pass and two in the backward pass, for each micro-batch
)
BYTES_PER_VALUE = 2
KINDS = ("tensor", "pipeline", "data")  # the usual order, from the innermost to the outermost


@broadcasting
def activation_bytes(tokens: Numbers, hidden: Any) -> Numbers:
    """The activations of ``tokens`` tokens between two layers: tokens x hidden x 2 bytes."""
    return (
        real_number("tokens", tokens, zero=False) * whole_number("hidden", hidden) * BYTES_PER_VALUE
    )


@broadcasting
def tensor_payload_bytes(layers: Numbers, tokens: Numbers, hidden: Any) -> Numbers:
    """What tensor-parallel ranks all-reduce in a step, all layers and micro-batches together.

    ``layers`` are those that the rank holds (126 / 16 is fine), ``tokens`` all those that pass in a
    step. Cutting them into more micro-batches makes more all-reduces of fewer bytes, and the same
    sum.
    """
    return (
        ALL_REDUCES_PER_LAYER
        * real_number("layers", layers, zero=False)
        * activation_bytes(tokens, hidden)
    )


@broadcasting
def tensor_bytes(layers: Numbers, tokens: Numbers, hidden: Any, tp: Any) -> Numbers:
    """Sent for tensor parallelism: 2 (tp - 1)/tp of ``tensor_payload_bytes``.

    >>> tensor_bytes(126 / 16, 131_072, 16_384, tp=8) / 1e9
    236.760072192
    """
    payload_bytes = tensor_payload_bytes(layers, tokens, hidden)
    _enough("hidden", hidden, "tp", tp)
    return bytes_sent("all_reduce", "ring", payload_bytes, tp)


def pipeline_bytes(tokens: Numbers, hidden: Any, tp: Any) -> Numbers:
    """Sent by a pipeline stage to one neighbor: activations forward, or as many gradients
    backward.

    Each of the ``tp`` ranks of a stage sends its share of them.

    >>> pipeline_bytes(131_072, 16_384, tp=8)
    536870912.0
    """
    activations = activation_bytes(tokens, hidden)
    _enough("hidden", hidden, "tp", tp)
    return activations / tp


def gradient_bytes(parameters: Numbers, tp: Any, pp: Any) -> Numbers:
    """The gradient of one GPU's share of the parameters, 2 bytes each."""
    parameters = real_number("parameters", parameters, zero=False)
    gpus = whole_number("tp", tp) * whole_number("pp", pp)
    _enough("parameters", parameters, "tp x pp", gpus)
    return BYTES_PER_VALUE * parameters / gpus


def data_bytes(parameters: Numbers, tp: Any, pp: Any, dp: Any) -> Numbers:
    """Sent for data parallelism: 2 (dp - 1)/dp of the GPU's gradient, once a step.

    >>> round(data_bytes(405e9, tp=8, pp=16, dp=128))
    12557373047
    """
    return bytes_sent("all_reduce", "ring", gradient_bytes(parameters, tp, pp), dp)


class Traffic(NamedTuple):
    """What one GPU sends in a step ``inside`` its node, on fast links, and ``across`` to others."""

    inside: float
    across: float


def traffic(
    parameters: float,
    layers: int,
    hidden: int,
    batch_tokens: int,
    *,
    tp: int,
    pp: int,
    dp: int,
    node_size: int,
    order: tuple[str, ...] = KINDS,
) -> dict[str, Traffic]:
    """The traffic of the busiest GPU of a step on each tier, for tensor, pipeline and data
    parallelism.

    The ranks of the first kind in ``order`` are neighbors, those of the next stand its degree
    apart, and so on: by default tensor ranks 1 apart, pipeline stages tp, replicas tp x pp.
    All-reduces are hierarchical. A stage sends to both neighbors, inside its node or, from its
    edge, across. Degrees and ``node_size`` must fit into one another by whole factors, as powers of
    two do. Raises where there is less than one layer a stage, token a replica, column a tensor rank
    or parameter a GPU; layers and tokens need not divide evenly, and the average is taken.

    >>> llama = traffic(405e9, 126, 16_384, 2**24, tp=8, pp=16, dp=128, node_size=8)
    >>> for kind, sent in llama.items():
    ...     print(f"{kind}: {sent.inside / 1e9:.1f} GB inside, {sent.across / 1e9:.1f} across")
    tensor: 236.8 GB inside, 0.0 across
    pipeline: 0.0 GB inside, 1.1 across
    data: 0.0 GB inside, 12.6 across
    """
    degrees = {
        "tensor": whole_number("tp", tp),
        "pipeline": whole_number("pp", pp),
        "data": whole_number("dp", dp),
    }
    node_size = whole_number("node_size", node_size)
    layers, batch_tokens = (
        whole_number("layers", layers),
        whole_number("batch_tokens", batch_tokens),
    )
    _enough("layers", layers, "pp", pp)
    _enough("batch_tokens", batch_tokens, "dp", dp)
    order = choice("order", order, tuple(itertools.permutations(KINDS)))
    tokens = batch_tokens / dp

    def in_a_node(kind: str) -> int:
        """How many ranks of a kind are in one node."""
        apart = math.prod(degrees[nearer] for nearer in order[: order.index(kind)])
        number = max(1, min(degrees[kind], node_size // apart))
        divisible(f"the degree of {kind}", degrees[kind], "those in one node", number)
        if apart < node_size:
            divisible("node_size", node_size, f"the span of its {kind} ranks", apart * number)
        return number

    def all_reduced(payload_bytes: float, kind: str) -> Traffic:
        sent = sent_by_tier("hierarchical", payload_bytes, degrees[kind], in_a_node(kind))
        return Traffic(sent.inside, sent.across)

    hop = pipeline_bytes(tokens, hidden, tp)
    stages = in_a_node("pipeline")
    away = 0 if stages == pp else 2 if stages == 1 and pp > 2 else 1
    return {
        "tensor": all_reduced(tensor_payload_bytes(layers / pp, tokens, hidden), "tensor"),
        "pipeline": Traffic(min(stages - 1, 2) * hop, away * hop),
        "data": all_reduced(gradient_bytes(parameters, tp, pp), "data"),
    }


def _enough(what: str, there_are: Numbers, among: str, parts: Numbers) -> None:
    """Refuse to cut what there is into more parts than that."""
    parts = whole_number(among, parts, array=True)
    if np.any(parts > there_are):
        raise ValueError(
            f"{among} must be at most {what}={shown(there_are)}, so that each has at least one, "
            f"got {shown(parts)}"
        )
