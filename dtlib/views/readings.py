"""The table of figures that are printed often and taken for something they are not figures of, with
both readings.
"""

from __future__ import annotations

from dtlib.assumptions import ACROSS_LATENCY_S
from dtlib.facts.registry import accelerator, fact
from dtlib.facts.sweeps import sweep
from dtlib.formulas.barrier import slowdown_of_longer_time, slowdown_of_lower_rate
from dtlib.formulas.collectives import bytes_sent, cost
from dtlib.formulas.memory import bytes_per_parameter, devices_needed, training_state
from dtlib.formulas.utilization import mfu
from dtlib.network import Network
from dtlib.units import GB, KiB, MiB, binary, duration, si
from dtlib.views.table import Table

__all__ = ["printed_figures"]

Row = tuple[str, str, str]


def printed_figures() -> Table:
    """Every figure the course departs from: as printed, what it is a figure of, and the other
    reading.
    """
    return Table(
        "Printed figures and their other readings",
        ("As printed", "What it is a figure of", "The other reading"),
        [*_state(), *_time(), *_collectives(), *_rates()],
    )


def _state() -> list[Row]:
    h100 = accelerator("H100-SXM")
    narrow, wide = (training_state(405e9, gradient_dtype=dtype).total for dtype in ("bf16", "fp32"))
    eighty_B, reported_B = 80 * h100.memory_B, h100.facts["memory_reported"].value
    return [
        (
            "16 bytes of state per parameter",
            "mixed-precision Adam with BF16 gradients",
            f"{bytes_per_parameter(gradient_dtype='fp32').total:g} with FP32 gradients",
        ),
        (
            "6.5 TB of state for 405 billion parameters",
            f"{si(narrow)}, rounded up",
            f"{si(wide)} with FP32 gradients",
        ),
        (
            "fits not on one GPU of 80 GB, or on eighty",
            f"80 hold {si(eighty_B)}: {si(narrow - eighty_B)} short",
            f"{devices_needed(narrow, h100.memory_B)} hold it",
        ),
        (
            "80 GB",
            f"{si(h100.memory_B)}, read as decimal",
            f"an H100 reports {binary(reported_B)}: {devices_needed(narrow, reported_B)} would "
            "hold it",
        ),
    ]


def _time() -> list[Row]:
    return [
        (
            "one GPU 10% slow",
            f"10% longer: a step takes {slowdown_of_longer_time(0.1):.2f} times as long",
            f"0.9 of the speed: {slowdown_of_lower_rate(0.9):.2f} times as long",
        )
    ]


def _collectives() -> list[Row]:
    sent = {ranks: bytes_sent("all_reduce", "ring", 1, ranks) for ranks in (2, 8)}
    network = Network.flat(accelerator("H100-SXM").nic_Bps, ACROSS_LATENCY_S)
    ring, tree, double_tree = (
        duration(cost("all_reduce", algorithm, GB, 1024, network).total_s)
        for algorithm in ("ring", "tree", "double_tree")
    )
    return [
        (
            "a ring sends about 2S, whatever K",
            "2(K - 1)/K S, for many ranks",
            f"{sent[2]:g} S at K = 2, {sent[8]:g} S at K = 8",
        ),
        (
            "trees are slow for large payloads",
            f"the naive tree: {tree} where a ring takes {ring}",
            f"double binary tree: {double_tree}",
        ),
    ]


def _rates() -> list[Row]:
    h100, achieved = accelerator("H100-SXM"), fact("llama-3-405b.achieved").dense_FLOPs
    two, one = sweep("nccl-16xh100-two-nodes"), sweep("nccl-8xh100")
    link = h100.scaleup_Bps / fact("a3-mega.nic").each_way_Bps
    leaving = {size: two.at(size) / one.at(size) for size in (32 * KiB, 512 * MiB)}
    return [
        (
            "NVLink 900 GB/s",
            "the sum of both directions",
            f"{si(h100.scaleup_Bps, 'B/s')} each way",
        ),
        (
            "18x from NVLink to the network",
            "a sum of both directions over a rate each way",
            f"{h100.scaleup_Bps / h100.nic_Bps:g}x, each way on both sides",
        ),
        (
            "leaving the node is as slow as its links",
            f"one link to another: {link:g}x with cards of 200 Gb/s",
            f"an all-reduce, measured: {leaving[512 * MiB]:.1f}x at 512 MiB, "
            f"{leaving[32 * KiB]:.1f}x at 32 KiB",
        ),
        (
            "1,979 TFLOP/s",
            "a peak with two of every four weights zero",
            f"{si(h100.peak_bf16_FLOPs, 'FLOP/s')} dense",
        ),
        (
            "41% MFU",
            f"{si(achieved, 'FLOP/s')} over the dense peak",
            f"computed {mfu(achieved, h100.peak_bf16_FLOPs):.1%}",
        ),
        (
            "HBM two orders of magnitude above the wire",
            f"{si(h100.hbm_Bps, 'B/s')} over {si(h100.nic_Bps, 'B/s')}",
            f"{h100.hbm_Bps / h100.nic_Bps:g}x, or {h100.hbm_Bps / (2 * h100.nic_Bps):.0f}x of "
            "both directions",
        ),
    ]
