"""The explorers of the chapter on the hierarchy."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from dtlib.assumptions import ACROSS_LATENCY_S, INSIDE_LATENCY_S
from dtlib.facts.registry import training_run
from dtlib.formulas.architecture import architecture
from dtlib.formulas.hierarchy import flat_ring_cost, hierarchical_cost, node_exit_Bps
from dtlib.formulas.step_time import compute_time_s
from dtlib.formulas.traffic import KINDS, Traffic, traffic
from dtlib.network import Network
from dtlib.units import GB, GiB, KiB, count_text, duration, si
from dtlib.views.charts import Looks, curves, payload_axis, rule, table, time_axis
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.explorers.topology import CARDS, H100, HIERARCHICAL, RING, TIERS, topology
from dtlib.views.theme import INK

__all__ = ["flat_or_hierarchical", "topology", "where_traffic_lands"]


# --- Flat or hierarchical -------------------------------------------------------------------------

SIZES = tuple(2**power for power in range(10, 34))
RATIOS = (2, 4.5, 9, 18, 36)
NODE_SIZES, NODE_COUNTS = (2, 4, 8, 16, 64), (2, 8, 32, 128)
ALONE = "one node alone"
CURVES = (RING, HIERARCHICAL, ALONE)
TIMES = tuple(10.0**power for power in range(-6, 2))


def _flat_or_hierarchical(
    ratio: float, node_size: int, nodes: int, shared: bool, overlapped: bool
) -> Shown:
    ranks = nodes * node_size
    network = Network.of_nodes(
        node_size,
        inside_Bps=H100.scaleup_Bps,
        across_Bps=H100.scaleup_Bps / ratio,
        inside_latency_s=INSIDE_LATENCY_S,
        across_latency_s=ACROSS_LATENCY_S,
        ranks_per_card=node_size if shared else 1,
    )

    def seconds(size: Any) -> dict[str, Any]:
        both = hierarchical_cost(size, ranks, network)
        return {
            RING: flat_ring_cost(size, ranks, network).total_s,
            HIERARCHICAL: both.overlapped_s if overlapped else both.total_s,
            ALONE: hierarchical_cost(size, node_size, network).total_s,
        }

    rows = [
        {"payload": size, "algorithm": name, "time_s": time, "mark": place % 4 == 2}
        for name, times in seconds(np.array(SIZES)).items()
        for place, (size, time) in enumerate(zip(SIZES, times, strict=True))
    ]
    small, large = seconds(32 * KiB), seconds(GiB)

    def times(at: dict[str, float], over: str, under: str) -> str:
        return f"{at[over] / at[under]:.3g} x"

    return Shown(
        {"curves": rows},
        {
            "leaves": si(node_exit_Bps(network), "B/s"),
            "gain_small": times(small, RING, HIERARCHICAL),
            "gain_large": times(large, RING, HIERARCHICAL),
            "leaving_small": times(small, HIERARCHICAL, ALONE),
            "leaving_large": times(large, HIERARCHICAL, ALONE),
        },
        f"{nodes} nodes of {node_size}, links between them {ratio:g} times slower: for 1 GiB a "
        f"hierarchical all-reduce takes {duration(large[HIERARCHICAL])}{' at best' * overlapped}, "
        f"a flat ring {times(large, RING, HIERARCHICAL)} as long, and "
        f"one node alone {duration(large[ALONE])}.",
    )


flat_or_hierarchical = Explorer(
    name="flat-or-hierarchical",
    title="Flat ring or hierarchical, over size, ratio and node size",
    model=_flat_or_hierarchical,
    controls=(
        Control(
            "ratio",
            "Links inside faster by",
            RATIOS,
            tuple(f"{ratio:g} x" for ratio in RATIOS),
            start=9,
        ),
        Control("node_size", "GPUs a node w", NODE_SIZES, start=8),
        Control("nodes", "Nodes N", NODE_COUNTS, start=8),
        CARDS,
        Control(
            "overlapped",
            "Phases",
            (False, True),
            ("one after another", "overlapped at best"),
            kind="choice",
        ),
    ),
    readouts={
        "leaves": "Out of a node, each way",
        "gain_small": "Ring / hierarchical, 32 KiB",
        "gain_large": "Ring / hierarchical, 1 GiB",
        "leaving_small": "All nodes / one, 32 KiB",
        "leaving_large": "All nodes / one, 1 GiB",
    },
    columns={
        "payload": Column("Payload (B)", ",d"),
        "algorithm": Column("All-reduce"),
        "time_s": Column("Time (s)", ".3~g"),
    },
    chart=curves(
        Looks(CURVES),
        "algorithm",
        payload_axis("payload", SIZES),
        time_axis(alt.Y, "time_s", TIMES),
    ),
    height=340,
)


# --- Where each parallelism's traffic lands -------------------------------------------------------

LLAMA, SHAPE = training_run("Llama-3-405B"), architecture("Llama-3.1-405B")
GPUS, BATCH_TOKENS = int(LLAMA["gpus"].value), int(LLAMA["batch_tokens"].value)
STEP_S = compute_time_s(
    405e9, BATCH_TOKENS, GPUS, LLAMA["achieved"].value
)  # at the rate of whole steps, waits included
TP, PP, LLAMA_NODE_SIZES = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32), (4, 8, 16, 32, 64)
INNERMOST = Control("innermost", "Innermost", KINDS, kind="choice")
AXIS_S = (1e-4, 1e2)


def _landing(sent: Traffic) -> str:
    return (
        ", ".join(f"{si(size)} {tier}" for tier, size in zip(TIERS, sent, strict=True) if size)
        or "nothing"
    )


def _where_traffic_lands(tp: int, pp: int, node_size: int, innermost: str) -> Shown:
    dp = GPUS // (tp * pp)
    order = (innermost, *(kind for kind in KINDS if kind != innermost))
    bill = traffic(
        405e9,
        SHAPE.layers,
        SHAPE.hidden,
        BATCH_TOKENS,
        tp=tp,
        pp=pp,
        dp=dp,
        node_size=node_size,
        order=order,
    )
    rows = [
        {
            "kind": kind,
            "tier": tier,
            "sent_GB": size / GB,
            "time_s": size / rate_Bps,
            "label": si(size),
        }
        for kind, sent in bill.items()
        for tier, size, rate_Bps in zip(TIERS, sent, (H100.scaleup_Bps, H100.nic_Bps), strict=True)
        if size
    ]
    across_s = sum(sent.across for sent in bill.values()) / H100.nic_Bps
    inside_s = sum(sent.inside for sent in bill.values()) / H100.scaleup_Bps
    crosses = bill["tensor"].across > 0
    beside = "" if innermost == "tensor" else f" beside {innermost}"
    warning = (
        f" Warning: TP={tp} does not fit in a node of {node_size}{beside}, so its all-reduces "
        "leave it in every layer."
        if crosses
        else ""
    )
    return Shown(
        {"traffic": rows, "compute": [{"at": STEP_S}]},
        {
            "order": ", ".join(order),
            "dp": f"{count_text(dp)} on {count_text(GPUS // node_size)} nodes",
            "tp": ("⚠ crosses: " if crosses else "") + _landing(bill["tensor"]),
            "pp": _landing(bill["pipeline"]),
            "data": _landing(bill["data"]),
            "inside_s": duration(inside_s),
            "across_s": duration(across_s),
        },
        f"TP={tp}, PP={pp}, DP={count_text(dp)}, {innermost} innermost, in nodes of {node_size}: a "
        f"GPU's traffic of one step takes {duration(inside_s)} inside nodes and "
        f"{duration(across_s)} across, beside a step of {duration(STEP_S)}.{warning}",
    )


def _traffic_chart() -> alt.LayerChart:
    tiers, ticks_s = Looks(TIERS), (AXIS_S[0], 1e-2, 1, AXIS_S[1])
    y = alt.Y(
        "kind:N",
        title=None,
        sort=list(KINDS),
        scale=alt.Scale(domain=list(KINDS)),
        axis=alt.Axis(labelFontSize=13, grid=True),
    )
    base = table("traffic").encode(
        x=time_axis(alt.X, "time_s", ticks_s, "Time, if nothing overlaps"),
        y=y,
        yOffset=alt.YOffset("tier:N", scale=alt.Scale(domain=list(TIERS))),
        color=tiers.color("tier"),
    )
    points = base.mark_point(size=150, opacity=1, filled=True, clip=True).encode(
        shape=tiers.shape("tier")
    )
    texts = [
        base.transform_filter(where)
        .mark_text(align=align, dx=dx, dy=dy)
        .encode(text="label:N", color=alt.value(INK))
        for where, align, dx, dy in (  # a label stands where it meets neither the edge nor the line
            ("datum.time_s <= 0.1", "left", 11, 0),
            (f"datum.time_s > {STEP_S}", "right", 8, 16),
            (f"datum.time_s > 0.1 && datum.time_s <= {STEP_S}", "right", -11, 0),
        )
    ]
    compute = table("compute")
    name = compute.mark_text(align="right", dx=-4, baseline="top").encode(
        x=alt.X("at:Q"), y=alt.value(2), text=alt.value("step of Llama 3")
    )
    return alt.layer(rule(compute, x="at:Q"), name, points, *texts)


where_traffic_lands = Explorer(
    name="where-traffic-lands",
    title="Llama 3 405B on 16,384 GPUs: where a step's traffic lands",
    model=_where_traffic_lands,
    controls=(
        Control("tp", "Tensor, TP", TP, start=8),
        Control("pp", "Pipeline, PP", PP, start=16),
        Control("node_size", "GPUs a node", LLAMA_NODE_SIZES, start=8),
        INNERMOST,
    ),
    readouts={
        "order": "From inside to outside",
        "dp": "Replicas DP",
        "tp": "Tensor: sent a step",
        "pp": "Pipeline: sent a step",
        "data": "Data: sent a step",
        "inside_s": "Time inside",
        "across_s": "Time across",
    },
    columns={
        "kind": Column("Parallelism"),
        "tier": Column("Tier"),
        "sent_GB": Column("Sent by a GPU a step (GB)", ".4~g"),
        "time_s": Column("Time (s)", ".3~g"),
    },
    chart=_traffic_chart(),
    height=300,
)
