"""The predictions of the chapter on the hierarchy."""

from __future__ import annotations

from dtlib.facts.registry import accelerator, fact, training_run
from dtlib.formulas.architecture import architecture
from dtlib.formulas.hierarchy import flat_ring_cost, hierarchical_cost, node_exit_Bps
from dtlib.formulas.traffic import tensor_bytes, tensor_payload_bytes
from dtlib.network import Network
from dtlib.units import GB, count_text
from dtlib.views.prediction import Prediction

__all__ = ["link_ratio", "node_exit", "slowdown", "tensor_traffic"]

_H100 = accelerator("H100-SXM")
_BYTES_ONLY = Network.named(_H100.name, inside_latency_s=0.0, across_latency_s=0.0)
_LLAMA, _SHAPE = training_run("Llama-3-405B"), architecture("Llama-3.1-405B")
_ON_A_STAGE = (
    _SHAPE.layers / _LLAMA["pp"].value,
    _LLAMA["batch_tokens"].value / _LLAMA["dp"].value,
    _SHAPE.hidden,
)

link_ratio = Prediction(
    name="link-ratio",
    question="NVLink on an H100 is printed as 900 GB/s, the GPU's network card as 400 Gb/s. "
    "A message goes one way: how many times faster is it on NVLink?",
    unit="times",
    answer=_H100.scaleup_Bps / _H100.nic_Bps,
    because=(
        "The 900 GB/s are the sum of both directions, so 450 GB/s each way. 400 Gb/s are 50 "
        "GB/s, each way already."
    ),
    hints=(
        (
            fact("h100-sxm.scaleup_printed").value / _H100.nic_Bps,
            "That divides a sum of both directions by the rate of one.",
        ),
        (900 / 400, "GB/s are bytes and Gb/s are bits: there is a factor of eight between them."),
        (450 / 400, "GB/s are bytes and Gb/s are bits: there is a factor of eight between them."),
    ),
)

node_exit = Prediction(
    name="node-exit",
    question="Each of the eight GPUs of a node has a 400 Gb/s card of its own, and all work at "
    "once. "
    "How many GB/s leave the node?",
    unit="GB/s",
    answer=node_exit_Bps(_BYTES_ONLY) / GB,
    because="Eight cards of 50 GB/s, each way. Nearly one GPU's NVLink.",
    hints=(
        (50, "That is one card. All eight work at once."),
        (3200, "That is in Gb/s."),
        (800, "What leaves goes one way."),
    ),
)

slowdown = Prediction(
    name="slowdown",
    question="Eight GPUs all-reduce a large payload inside a node, at 450 GB/s. Now 16 GPUs in two "
    "nodes do it: inside, "
    "across at 50 GB/s a GPU, and inside, one after the other. How many times as long does it "
    "take? (No latency.)",
    unit="times",
    answer=hierarchical_cost(GB, 16, _BYTES_ONLY).total_s
    / hierarchical_cost(GB, 8, _BYTES_ONLY).total_s,
    because=(
        "Inside, a GPU sends 7/4 S at 450 GB/s, as before. Across it sends S/8 at 50 GB/s: 2.5 "
        "ps a byte on top of 3.9."
    ),
    hints=(
        (9, "That would be so if every byte went across. How many does one GPU send there?"),
        (18, "That divides a sum of both directions by the rate of one."),
        (
            flat_ring_cost(GB, 16, _BYTES_ONLY).total_s
            / hierarchical_cost(GB, 8, _BYTES_ONLY).total_s,
            "That is a flat ring, which goes through one card. Here all eight work.",
        ),
        (
            1 + 9 / 1.75,
            "That sends the whole payload through one card. Each of the eight sends an eighth.",
        ),
    ),
)

tensor_traffic = Prediction(
    name="tensor-traffic",
    question="Llama 3 405B on TP=8, PP=16, DP=128: a GPU sends 12.6 GB a step for its gradients. "
    "It holds a sixteenth of "
    f"the {_SHAPE.layers} layers. Its replica sees {count_text(int(_ON_A_STAGE[1]))} tokens a "
    "step, and a token is "
    f"{count_text(_SHAPE.hidden)} values of 2 bytes between layers. How many GB does the GPU send "
    "for the "
    "all-reduces of tensor parallelism, four per layer?",
    unit="GB",
    answer=tensor_bytes(*_ON_A_STAGE, int(_LLAMA["tp"].value)) / GB,
    because=(
        "126/16 layers x 4 all-reduces x 7/4 x 131,072 tokens x 16,384 values x 2 bytes. "
        "Nineteen times its gradients."
    ),
    hints=(
        (
            tensor_payload_bytes(*_ON_A_STAGE) / GB,
            "That is the payload. In an all-reduce of eight, a rank sends 7/4 of it.",
        ),
        (
            tensor_bytes(_SHAPE.layers, *_ON_A_STAGE[1:], 8) / GB,
            "That counts all layers. A GPU holds one stage of 16.",
        ),
        (tensor_bytes(*_ON_A_STAGE, 8) / 16 / GB, "That is one micro-batch of 16."),
    ),
)
