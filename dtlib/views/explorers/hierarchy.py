"""The explorers of the chapter on the hierarchy."""

from __future__ import annotations

import itertools
from typing import Any

import altair as alt
import numpy as np

from dtlib.facts.registry import accelerator, run
from dtlib.formulas.architecture import architecture
from dtlib.formulas.hierarchy import TwoTiers, flat_ring_cost, hierarchical_cost, node_exit_Bps
from dtlib.formulas.step_time import compute_time_s
from dtlib.formulas.traffic import Traffic, traffic
from dtlib.simulators.checker import bytes_by_tier
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import make
from dtlib.simulators.network import Network, Tier
from dtlib.simulators.schedule import Schedule
from dtlib.units import GB, GiB, KiB, MiB, binary, count_text, duration, si
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.theme import COLORS, DASHES, INK, SECONDS, SHAPES

__all__ = ["flat_or_hierarchical", "topology", "where_traffic_lands"]

H100 = accelerator("H100-SXM")
INNER_LATENCY_S, OUTER_LATENCY_S = 1e-6, 5e-6  # illustrations
RING, HIERARCHICAL = "flat ring", "hierarchical"
ALGORITHMS = Control("algorithm", "All-reduce", ("ring", "hierarchical"), (RING, HIERARCHICAL), kind="choice")
CARDS = Control("shared", "Network cards", (False, True), ("one per GPU", "one per node"), kind="choice")
TIERS = ("inside", "across")
TIER_SCALES = {"domain": list(TIERS)}


def _tier_color() -> Any:
    return alt.Color("tier:N", title=None, scale=alt.Scale(**TIER_SCALES, range=[COLORS[0], COLORS[1]]))


# --- The topology and its bill ----------------------------------------------------------------------------------------

NODES, WIDTHS = (2, 3, 4), (2, 4, 8)
BILL_SIZES = (32 * KiB, MiB, 32 * MiB, GiB)
REACH = 0.34  # how far a link that closes a ring is drawn beside its column, in columns
CARD = 0.3  # and how far a network card


def _network(width: int, shared: bool) -> Network:
    return Network((Tier("inside", H100.scaleup_Bps, INNER_LATENCY_S, group_size=width),
                    Tier("across", H100.nic_Bps, OUTER_LATENCY_S, ranks_per_port=width if shared else 1)))


def _carried(schedule: Schedule, payload: int) -> dict[tuple[int, int], int]:
    """The bytes between every pair of ranks that exchange messages, by (source, destination)."""
    sizes, carried = schedule.chunk_sizes(payload), {}
    for step in schedule.steps:
        for source, destination, chunk in zip(step.source, step.destination, step.chunk, strict=True):
            pair = int(source), int(destination)
            carried[pair] = carried.get(pair, 0) + int(sizes[chunk])
    return dict(sorted(carried.items()))


def _lines(carried: dict[tuple[int, int], int], width: int, nodes: int, shared: bool) -> list[dict[str, Any]]:
    """The links as lines between (node, GPU) places, with the bytes each carries."""
    rows: list[dict[str, Any]] = []

    def draw(link: str, tier: str, size: int, *points: tuple[float, float]) -> None:
        rows.extend({"x": x, "y": y, "x2": x2, "y2": y2, "tier": tier, "link_GB": size / GB, "link": link}
                    for (x, y), (x2, y2) in itertools.pairwise(points))

    def cross(link: str, size: int, start: tuple[float, float], end: tuple[float, float]) -> None:
        if end[0] > start[0]:
            draw(link, "across", size, start, (start[0] + 0.42, start[1]), (end[0] - 0.42, end[1]), end)
        else:  # back to the first node: leaves right and enters left
            draw(link, "across", size, start, (nodes - 1 + 2 * REACH, start[1]))
            draw(link, "across", size, (-2 * REACH, end[1]), end)

    uses: dict[int, dict[int, int]] = {}  # the bytes between the one card of a node and each of its GPUs, the busier way
    between: dict[tuple[int, int], int] = {}
    for (source, destination), size in carried.items():
        (node, place), (to, to_place) = divmod(source, width), divmod(destination, width)
        link = f"GPU {source} to {destination}"
        if node != to and shared:
            uses.setdefault(node, {})[place] = uses.setdefault(to, {})[to_place] = size
            between[node, to] = between.get((node, to), 0) + size
        elif node != to:
            cross(link, size, (node, place), (to, to_place))
        elif to_place > place:
            draw(link, "inside", size, (node, place), (to, to_place))
        elif place - to_place > 1:  # back to the first GPU, beside the column
            draw(link, "inside", size, (node, place), (node - REACH, place - 0.4), (node - REACH, to_place + 0.4), (to, to_place))
    for (node, to), size in between.items():
        trunk, card = f"node {node} to its card", (node + CARD, _card_row(width))
        for place, part in sorted(uses[node].items()):
            draw(f"GPU {node * width + place} to its card", "across", part, (node, place), (card[0], place))
        draw(trunk, "across", size, (card[0], min(uses[node])), card)
        cross(f"node {node} to {to}", size, card, (to + CARD, card[1]))
    return rows


def _card_row(width: int) -> float:
    """Where the one card of a node is drawn: under its GPUs."""
    return width - 0.1


def _cards(carried: dict[tuple[int, int], int], width: int, ranks: int, shared: bool) -> list[dict[str, Any]]:
    """Every network card, and what it does."""
    sends = {source for source, destination in carried if source // width != destination // width}
    receives = {destination for source, destination in carried if source // width != destination // width}
    if shared:
        return [{"node": node + CARD, "place": _card_row(width), "card": "sends"} for node in range(ranks // width)]
    return [{"node": rank // width + CARD, "place": rank % width,
             "card": "sends" if rank in sends else "receives" if rank in receives else "idle"} for rank in range(ranks)]


def _topology(nodes: int, width: int, algorithm: str, payload: int, shared: bool) -> Shown:
    ranks = nodes * width
    schedule = make("all_reduce", algorithm, ranks, **({"group": width} if algorithm == "hierarchical" else {}))
    network = _network(width, shared)
    sent = bytes_by_tier(schedule, network, payload)
    leaves = int(sent["across"][:width].sum())
    cards = 1 if shared else int((sent["across"][:width] > 0).sum())
    card = leaves if shared else int(sent["across"].max())
    whole = time_s(schedule, network, payload)
    tiers = TwoTiers(H100.scaleup_Bps, INNER_LATENCY_S, H100.nic_Bps, OUTER_LATENCY_S, width if shared else 1)
    inside_s = 0.0 if algorithm == "ring" else hierarchical_cost(payload, ranks, width, tiers).inside.total_s
    boxes = [{"left": node - 0.45, "right": node + 0.45, "top": -0.55, "bottom": width - 0.45, "node": node, "at": -0.85,
              "title": f"node {node}"} for node in range(nodes)]
    gpus = [{"node": rank // width, "place": rank % width, "rank": str(rank)} for rank in range(ranks)]
    frame = [{"left": -2 * REACH, "right": nodes - 1 + 2 * REACH, "top": -1.05,
              "bottom": _card_row(width) + 0.25 if shared else width - 0.4}]
    name = dict(zip(ALGORITHMS.values, ALGORITHMS.texts, strict=True))[algorithm]
    inside = "not apart" if algorithm == "ring" else duration(inside_s)
    carried = _carried(schedule, payload)
    return Shown(
        {"links": _lines(carried, width, nodes, shared), "boxes": boxes, "gpus": gpus,
         "cards": _cards(carried, width, ranks, shared), "frame": frame},
        {"inside": si(sent["inside"].max()), "leaves": si(leaves), "card": f"{si(card)} ({cards} of {1 if shared else width})",
         "inside_s": inside, "across_s": duration(whole - inside_s), "whole": duration(whole)},
        f"A {name} all-reduce of {binary(payload)} on {nodes} nodes of {width} GPUs: {si(leaves)} leave each node through "
        f"{cards} network card{'s' * (cards > 1)} (filled squares), and it takes {duration(whole)}.")


def _topology_chart() -> Any:
    plain = {"zero": False, "nice": False, "padding": 0}
    x = alt.X("left:Q", title=None, axis=None, scale=alt.Scale(**plain))
    y = alt.Y("top:Q", title=None, axis=None, scale=alt.Scale(**plain, reverse=True))
    frame = alt.Chart(alt.NamedData("frame")).mark_rect(opacity=0).encode(x=x, x2="right", y=y, y2="bottom")
    boxes = alt.Chart(alt.NamedData("boxes"))
    box = boxes.mark_rect(fill=COLORS[0], fillOpacity=0.06, stroke=INK, strokeOpacity=0.35, cornerRadius=6).encode(
        x=alt.X("left:Q"), x2="right", y=alt.Y("top:Q"), y2="bottom")
    title = boxes.mark_text(fontSize=12).encode(x=alt.X("node:Q"), y=alt.Y("at:Q"), text="title:N")
    links = alt.Chart(alt.NamedData("links")).mark_rule(opacity=0.9).encode(
        x=alt.X("x:Q"), x2="x2", y=alt.Y("y:Q"), y2="y2", color=_tier_color(),
        strokeDash=alt.StrokeDash("tier:N", title=None, scale=alt.Scale(**TIER_SCALES, range=[[1, 0], [6, 3]])),
        strokeWidth=alt.StrokeWidth("link_GB:Q", legend=None, scale=alt.Scale(zero=True, range=[1, 6])))
    gpus = alt.Chart(alt.NamedData("gpus"))
    places = {"x": alt.X("node:Q"), "y": alt.Y("place:Q")}
    cards = alt.Chart(alt.NamedData("cards")).encode(**places)
    filled = cards.transform_filter("datum.card == 'sends'").mark_point(
        shape="square", size=90, opacity=1, filled=True, color=COLORS[1])
    hollow = cards.transform_filter("datum.card != 'sends'").mark_point(
        shape="square", size=90, filled=False, strokeWidth=1.5).encode(
        stroke=alt.condition("datum.card == 'receives'", alt.value(COLORS[1]), alt.value(INK)),
        opacity=alt.condition("datum.card == 'receives'", alt.value(1), alt.value(0.4)))
    dot = gpus.mark_point(size=420, opacity=1, filled=True, color=COLORS[0]).encode(**places)
    rank = gpus.mark_text(fontSize=11, color="white", fontWeight="bold").encode(**places, text="rank:N")
    return alt.layer(frame, box, title, links, filled, hollow, dot, rank)


topology = Explorer(
    name="topology", title="One all-reduce on two tiers, and the bill of each", model=_topology,
    controls=(Control("nodes", "Nodes N", NODES, start=2), Control("width", "GPUs a node w", WIDTHS, start=8), ALGORITHMS,
              Control("payload", "Payload S", BILL_SIZES, tuple(map(binary, BILL_SIZES)), start=GiB), CARDS),
    readouts={"inside": "Busiest GPU sends inside", "leaves": "Leaves each node", "card": "Busiest card sends",
              "inside_s": "Time inside", "across_s": "Time across", "whole": "Time in all"},
    columns={"link": Column("Link"), "tier": Column("Tier"), "link_GB": Column("Bytes in all (GB)", ".4~g")},
    chart=_topology_chart(), height=360)


# --- Flat or hierarchical ---------------------------------------------------------------------------------------------

SIZES = tuple(2**power for power in range(10, 34))
RATIOS = (2, 4.5, 9, 18, 36)
GROUPS, NODE_COUNTS = (2, 4, 8, 16, 64), (2, 8, 32, 128)
ALONE = "one node alone"
CURVES = (RING, HIERARCHICAL, ALONE)
TIMES = tuple(10.0**power for power in range(-6, 2))


def _flat_or_hierarchical(ratio: float, width: int, nodes: int, shared: bool, overlapped: bool) -> Shown:
    ranks = nodes * width
    tiers = TwoTiers(H100.scaleup_Bps, INNER_LATENCY_S, H100.scaleup_Bps / ratio, OUTER_LATENCY_S, width if shared else 1)

    def seconds(size: Any) -> dict[str, Any]:
        both = hierarchical_cost(size, ranks, width, tiers)
        return {RING: flat_ring_cost(size, ranks, width, tiers).total_s,
                HIERARCHICAL: both.overlapped_s if overlapped else both.total_s,
                ALONE: hierarchical_cost(size, width, width, tiers).total_s}

    rows = [{"payload": size, "algorithm": name, "time_s": time, "mark": place % 4 == 2}
            for name, times in seconds(np.array(SIZES)).items()
            for place, (size, time) in enumerate(zip(SIZES, times, strict=True))]
    small, large = seconds(32 * KiB), seconds(GiB)

    def times(at: dict[str, float], over: str, under: str) -> str:
        return f"{at[over] / at[under]:.3g} x"

    return Shown(
        {"curves": rows},
        {"leaves": si(node_exit_Bps(width, tiers), "B/s"), "gain_small": times(small, RING, HIERARCHICAL),
         "gain_large": times(large, RING, HIERARCHICAL), "leaving_small": times(small, HIERARCHICAL, ALONE),
         "leaving_large": times(large, HIERARCHICAL, ALONE)},
        f"{nodes} nodes of {width}, links between them {ratio:g} times slower: for 1 GiB a hierarchical all-reduce takes "
        f"{duration(large[HIERARCHICAL])}{' at best' * overlapped}, a flat ring {times(large, RING, HIERARCHICAL)} as long, and "
        f"one node alone {duration(large[ALONE])}.")


def _curve_channel(kind: type, looks: tuple[Any, ...], **legend: Any) -> Any:
    return kind("algorithm:N", title=None, scale=alt.Scale(domain=list(CURVES), range=list(looks[:3])), **legend)


def _curves_chart() -> Any:
    x = alt.X("payload:Q", title="Payload S", scale=alt.Scale(type="log", base=2, domain=[SIZES[0], SIZES[-1]], nice=False),
              axis=alt.Axis(values=[KiB, 32 * KiB, MiB, 32 * MiB, GiB], grid=False, labelExpr=(
                  f"datum.value < {MiB} ? datum.value / {KiB} + ' KiB' : "
                  f"datum.value < {GiB} ? datum.value / {MiB} + ' MiB' : datum.value / {GiB} + ' GiB'")))
    y = alt.Y("time_s:Q", title="Time", scale=alt.Scale(type="log", domain=[TIMES[0], TIMES[-1]], nice=False),
              axis=alt.Axis(values=list(TIMES), labelExpr=SECONDS))
    symbols = alt.Legend(symbolSize=110)
    base = alt.Chart(alt.NamedData("curves")).encode(x=x, y=y, color=_curve_channel(alt.Color, COLORS, legend=symbols))
    shape = _curve_channel(alt.Shape, SHAPES, legend=symbols)
    dash = _curve_channel(alt.StrokeDash, DASHES, legend=None)
    layers = (base.mark_line(clip=True).encode(strokeDash=dash),
              base.transform_filter("datum.mark").mark_point(opacity=1, clip=True).encode(shape=shape))
    return alt.layer(*layers).resolve_legend(strokeDash="independent")  # dashes would be outlines of the legend's shapes


flat_or_hierarchical = Explorer(
    name="flat-or-hierarchical", title="Flat ring or hierarchical, over size, ratio and node width",
    model=_flat_or_hierarchical,
    controls=(Control("ratio", "Links inside faster by", RATIOS, tuple(f"{ratio:g} x" for ratio in RATIOS), start=9),
              Control("width", "GPUs a node w", GROUPS, start=8), Control("nodes", "Nodes N", NODE_COUNTS, start=8), CARDS,
              Control("overlapped", "Phases", (False, True), ("one after another", "overlapped at best"), kind="choice")),
    readouts={"leaves": "Out of a node, each way", "gain_small": "Ring / hierarchical, 32 KiB",
              "gain_large": "Ring / hierarchical, 1 GiB", "leaving_small": "All nodes / one, 32 KiB",
              "leaving_large": "All nodes / one, 1 GiB"},
    columns={"payload": Column("Payload (B)", ",d"), "algorithm": Column("All-reduce"), "time_s": Column("Time (s)", ".3~g")},
    chart=_curves_chart(), height=340)


# --- Where each parallelism's traffic lands ---------------------------------------------------------------------------

LLAMA, SHAPE = run("Llama-3-405B"), architecture("Llama-3.1-405B")
GPUS, BATCH_TOKENS = int(LLAMA["gpus"].value), int(LLAMA["batch_tokens"].value)
COMPUTE_S = compute_time_s(405e9, BATCH_TOKENS, GPUS, LLAMA["achieved"].value)
TP, PP, ISLANDS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32), (4, 8, 16, 32, 64)
KINDS = ("tensor", "pipeline", "data")
AXIS_S = (1e-4, 1e2)


def _landing(sent: Traffic) -> str:
    return ", ".join(f"{si(size)} {tier}" for tier, size in zip(TIERS, sent, strict=True) if size) or "nothing"


def _where_traffic_lands(tp: int, pp: int, island: int) -> Shown:
    dp = GPUS // (tp * pp)
    bill = traffic(405e9, SHAPE.layers, SHAPE.hidden, BATCH_TOKENS, tp=tp, pp=pp, dp=dp, island=island)
    rows = [{"kind": kind, "tier": tier, "sent_GB": size / GB, "time_s": size / rate_Bps, "label": si(size)}
            for kind, sent in bill.items()
            for tier, size, rate_Bps in zip(TIERS, sent, (H100.scaleup_Bps, H100.nic_Bps), strict=True) if size]
    across_s = sum(sent.across for sent in bill.values()) / H100.nic_Bps
    inside_s = sum(sent.inside for sent in bill.values()) / H100.scaleup_Bps
    warning = (f" Warning: TP={tp} exceeds the island of {island}, so its all-reduces cross it in every layer." if tp > island
               else "")
    return Shown(
        {"traffic": rows, "compute": [{"at": COMPUTE_S}]},
        {"dp": f"{count_text(dp)} on {count_text(GPUS // island)} islands",
         "tp": ("⚠ crosses: " if tp > island else "") + _landing(bill["tensor"]),
         "pp": _landing(bill["pipeline"]), "data": _landing(bill["data"]),
         "inside_s": duration(inside_s), "across_s": duration(across_s)},
        f"TP={tp}, PP={pp}, DP={count_text(dp)} on islands of {island}: a GPU's traffic of one step takes {duration(inside_s)} "
        f"inside islands and {duration(across_s)} across, beside {duration(COMPUTE_S)} of computing.{warning}")


def _traffic_chart() -> Any:
    x = alt.X("time_s:Q", title="Time, if nothing overlaps",
              scale=alt.Scale(type="log", domain=list(AXIS_S), nice=False),
              axis=alt.Axis(values=[1e-4, 1e-2, 1, 100], labelExpr=SECONDS))
    y = alt.Y("kind:N", title=None, sort=list(KINDS), scale=alt.Scale(domain=list(KINDS)),
              axis=alt.Axis(labelFontSize=13, grid=True))
    base = alt.Chart(alt.NamedData("traffic")).encode(
        x=x, y=y, yOffset=alt.YOffset("tier:N", scale=alt.Scale(**TIER_SCALES)), color=_tier_color())
    shape = alt.Shape("tier:N", title=None, scale=alt.Scale(**TIER_SCALES, range=list(SHAPES[:2])))
    points = base.mark_point(size=150, opacity=1, filled=True, clip=True).encode(shape=shape)
    texts = [base.transform_filter(where).mark_text(align=align, dx=dx, dy=dy).encode(text="label:N", color=alt.value(INK))
             for where, align, dx, dy in (  # a label stands where it meets neither the edge nor the line
                 ("datum.time_s <= 0.1", "left", 11, 0), (f"datum.time_s > {COMPUTE_S}", "center", 0, 16),
                 (f"datum.time_s > 0.1 && datum.time_s <= {COMPUTE_S}", "right", -11, 0))]
    compute = alt.Chart(alt.NamedData("compute"))
    rule = compute.mark_rule(strokeDash=[2, 3], strokeWidth=1.5).encode(x=alt.X("at:Q"))
    name = compute.mark_text(align="right", dx=-4, baseline="top").encode(
        x=alt.X("at:Q"), y=alt.value(2), text=alt.value("computing"))
    return alt.layer(rule, name, points, *texts)


where_traffic_lands = Explorer(
    name="where-traffic-lands", title="Llama 3 405B on 16,384 GPUs: where a step's traffic lands", model=_where_traffic_lands,
    controls=(Control("tp", "Tensor, TP", TP, start=8), Control("pp", "Pipeline, PP", PP, start=16),
              Control("island", "GPUs an island", ISLANDS, start=8)),
    readouts={"dp": "Replicas DP", "tp": "Tensor: sent a step", "pp": "Pipeline: sent a step", "data": "Data: sent a step",
              "inside_s": "Time inside", "across_s": "Time across"},
    columns={"kind": Column("Parallelism"), "tier": Column("Tier"), "sent_GB": Column("Sent by a GPU a step (GB)", ".4~g"),
             "time_s": Column("Time (s)", ".3~g")},
    chart=_traffic_chart(), height=300)
