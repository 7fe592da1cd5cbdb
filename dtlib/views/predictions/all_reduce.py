"""The predictions of the all-reduce chapter."""

from __future__ import annotations

from dtlib.assumptions import ACROSS_LATENCY_S
from dtlib.facts.registry import accelerator
from dtlib.facts.sweeps import sweep
from dtlib.formulas.collectives import bus_bandwidth_Bps, bytes_sent, cost
from dtlib.network import Network
from dtlib.units import GB, GiB
from dtlib.views.prediction import Prediction

__all__ = ["bus_bandwidth", "ring_bytes", "root_bytes", "tiny_payload"]

_NETWORK = Network.flat(accelerator("H100-SXM").nic_Bps, ACROSS_LATENCY_S)

root_bytes = Prediction(
    name="root-bytes",
    question="Eight ranks sum 1 GB the obvious way: everyone sends to rank 0, which sends the sum "
    "to everyone. "
    "How many GB does rank 0 send?",
    unit="GB",
    answer=bytes_sent("all_reduce", "naive", GB, 8) / GB,
    because=(
        "Rank 0 sends the whole sum to each of the other seven ranks, and before that it has "
        "received as much."
    ),
    hints=(
        (8, "Rank 0 need not send to itself."),
        (1, "Each of the others needs its own copy."),
        (14, "That adds what it receives."),
    ),
)

ring_bytes = Prediction(
    name="ring-bytes",
    question=(
        "In a ring of 8 ranks each rank sends 1.75 GB to all-reduce 1 GB. How many GB in a "
        "ring of 16,384 ranks?"
    ),
    unit="GB",
    answer=bytes_sent("all_reduce", "ring", GB, 16384) / GB,
    because="2(K - 1)/K is 1.75 for 8 ranks and stays below 2 for any K. The bytes stop growing.",
    hints=(
        (1.75 * 16384 / 8, "That grows with the ranks. But chunks shrink as the steps multiply."),
        (16383, "That is what rank 0 sends in the naive way."),
        (1, "That is one of the two trips around the ring."),
    ),
)

tiny_payload = Prediction(
    name="tiny-payload",
    question=(
        "Now 16,384 ranks all-reduce 8 bytes in a ring. Every hop has a latency of 5 µs. How "
        "many milliseconds?"
    ),
    unit="ms",
    answer=cost("all_reduce", "ring", 8, 16384, _NETWORK).total_s * 1e3,
    because="2(K - 1) = 32,766 hops follow one another, at 5 µs each. The 8 bytes cost nothing.",
    hints=(
        (
            1e3 * 16383 * ACROSS_LATENCY_S,
            "That is the reduce-scatter. The all-gather goes around once more.",
        ),
        (1e3 * ACROSS_LATENCY_S, "That is one hop. How many follow one another?"),
        (1e3 * 28 * ACROSS_LATENCY_S, "That is a tree's time. A ring visits rank after rank."),
    ),
)

bus_bandwidth = Prediction(
    name="bus-bandwidth",
    question="Eight H100 in a node all-reduce 1 GiB in 4.03 ms (measured). The NVLink of each GPU "
    "carries 450 GB/s "
    "one way. Which bus bandwidth does nccl-tests print, in GB/s?",
    unit="GB/s",
    answer=bus_bandwidth_Bps("all_reduce", GiB, sweep("nccl-8xh100").at(GiB), 8) / GB,
    because=(
        "S/t is 266 GB/s, times 2(K - 1)/K = 1.75. It exceeds the wire's 450 GB/s: the "
        "switches have done the adding."
    ),
    hints=(
        (266.5, "That is the algorithm bandwidth, S/t."),
        (434.2, "1 GiB is 1.074 GB."),
        (233.2, "That is the factor of an all-gather."),
    ),
)
