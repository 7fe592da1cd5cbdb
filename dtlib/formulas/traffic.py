"""What one GPU sends in a training step for each kind of parallelism.

Activations and gradients have 2 bytes a value (BF16). A ring all-reduce or its like moves 2 (d -
1)/d of its payload among d ranks. Whether the traffic hides behind computing is not asked here.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from dtlib.arguments import broadcasting, choice, divisible, real_number, whole_number
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
    return bytes_sent("all_reduce", "ring", tensor_payload_bytes(layers, tokens, hidden), tp)


def pipeline_bytes(tokens: Numbers, hidden: Any, tp: Any) -> Numbers:
    """Sent by an inner pipeline stage to one neighbor: activations forward, or as many gradients
    backward.

    Each of the ``tp`` ranks of a stage sends its share of them.

    >>> pipeline_bytes(131_072, 16_384, tp=8)
    536870912.0
    """
    return activation_bytes(tokens, hidden) / whole_number("tp", tp)


def gradient_bytes(parameters: Numbers, tp: Any, pp: Any) -> Numbers:
    """The gradient of one GPU's share of the parameters, 2 bytes each."""
    return (
        BYTES_PER_VALUE
        * real_number("parameters", parameters, zero=False)
        / (whole_number("tp", tp) * whole_number("pp", pp))
    )


def data_bytes(parameters: Numbers, tp: Any, pp: Any, dp: Any) -> Numbers:
    """Sent for data parallelism: 2 (dp - 1)/dp of the GPU's gradient, once a step.

    >>> round(data_bytes(405e9, tp=8, pp=16, dp=128))
    12557373047
    """
    return bytes_sent("all_reduce", "ring", gradient_bytes(parameters, tp, pp), dp)


class Traffic(NamedTuple):
    """What one GPU sends in a step ``inside`` its island of fast links, and ``across`` to others."""

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
    island: int,
    order: tuple[str, ...] = KINDS,
) -> dict[str, Traffic]:
    """The traffic of the busiest GPU of a step on each tier, for tensor, pipeline and data
    parallelism.

    The ranks of the first kind in ``order`` are neighbors, those of the next stand its degree
    apart, and so on: by default tensor ranks 1 apart, pipeline stages tp, replicas tp x pp.
    All-reduces are hierarchical. A stage sends to both neighbors, inside its island or, from its
    edge, outside. Degrees and ``island`` must fit into one another by whole factors, as powers of
    two do.

    >>> llama = traffic(405e9, 126, 16_384, 2**24, tp=8, pp=16, dp=128, island=8)
    >>> {kind: (round(sent.inside / 1e9, 1), round(sent.across / 1e9, 1)) for kind, sent in llama.items()}
    {'tensor': (236.8, 0.0), 'pipeline': (0.0, 1.1), 'data': (0.0, 12.6)}
    """
    tp, pp, dp, island = (
        whole_number("tp", tp),
        whole_number("pp", pp),
        whole_number("dp", dp),
        whole_number("island", island),
    )
    layers = real_number("layers", layers, zero=False, array=False)
    tokens = real_number("batch_tokens", batch_tokens, zero=False, array=False) / dp
    order = choice("order", order, tuple(itertools.permutations(KINDS)))
    degrees = {"tensor": tp, "pipeline": pp, "data": dp}

    def near(kind: str) -> int:
        """How many ranks of a kind are on one island."""
        apart = math.prod(degrees[inner] for inner in order[: order.index(kind)])
        number = max(1, min(degrees[kind], island // apart))
        divisible(f"the degree of {kind}", degrees[kind], "those on one island", number)
        if apart < island:
            divisible("island", island, f"the span of its {kind} ranks", apart * number)
        return number

    def all_reduced(payload_bytes: float, kind: str) -> Traffic:
        sent = sent_by_tier("hierarchical", payload_bytes, degrees[kind], near(kind))
        return Traffic(sent.inside, sent.across)

    hop = pipeline_bytes(tokens, hidden, tp)
    stages = near("pipeline")
    outside = 0 if stages == pp else 2 if stages == 1 and pp > 2 else 1
    return {
        "tensor": all_reduced(tensor_payload_bytes(layers / pp, tokens, hidden), "tensor"),
        "pipeline": Traffic(min(stages - 1, 2) * hop, outside * hop),
        "data": all_reduced(gradient_bytes(parameters, tp, pp), "data"),
    }
