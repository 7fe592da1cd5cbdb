"""The explorer that draws an all-reduce on two tiers, and what the explorers of the hierarchy have
in common.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import altair as alt
import numpy as np

from dtlib.assumptions import ACROSS_LATENCY_S, INSIDE_LATENCY_S
from dtlib.facts.registry import accelerator
from dtlib.formulas.hierarchy import hierarchical_cost
from dtlib.network import Network
from dtlib.simulators.checker import count_bytes_by_tier
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import make
from dtlib.simulators.schedule import Schedule
from dtlib.units import GB, GiB, KiB, MiB, binary, duration, si
from dtlib.views.charts import Looks, table
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.theme import COLORS, INK

__all__ = ["CARDS", "H100", "HIERARCHICAL", "RING", "TIERS", "topology"]

H100 = accelerator("H100-SXM")
RING, HIERARCHICAL = "flat ring", "hierarchical"
ALGORITHMS = Control(
    "algorithm", "All-reduce", ("ring", "hierarchical"), (RING, HIERARCHICAL), kind="choice"
)
CARDS = Control(
    "shared", "Network cards", (False, True), ("one per GPU", "one per node"), kind="choice"
)
TIERS = ("inside", "across")

NODES, NODE_SIZES = (2, 3, 4), (2, 4, 8)
BILL_SIZES = (32 * KiB, MiB, 32 * MiB, GiB)
REACH = 0.34  # how far a link that closes a ring is drawn beside its column, in columns
CARD = 0.3  # and how far a network card


_made = cache(make)  # one schedule serves every payload, and both kinds of card


def _carried(schedule: Schedule, payload: int) -> dict[tuple[int, int], int]:
    """The bytes between every pair of ranks that exchange messages, by (source, destination)."""
    sizes = schedule.chunk_sizes(payload)
    carried = np.zeros((schedule.ranks, schedule.ranks), dtype=np.int64)
    for step in schedule.steps:
        np.add.at(carried, (step.source, step.destination), sizes[step.chunk])
    return {(int(source), int(to)): int(carried[source, to]) for source, to in np.argwhere(carried)}


def _lines(
    carried: dict[tuple[int, int], int], node_size: int, nodes: int, shared: bool
) -> list[dict[str, Any]]:
    """The links as lines between (node, GPU) places, with the bytes each carries."""
    rows: list[dict[str, Any]] = []

    def draw(link: str, tier: str, size: int, *points: tuple[float, float]) -> None:
        rows.extend(
            {"x": x, "y": y, "x2": x2, "y2": y2, "tier": tier, "link_GB": size / GB, "link": link}
            for (x, y), (x2, y2) in itertools.pairwise(points)
        )

    def cross(link: str, size: int, start: tuple[float, float], end: tuple[float, float]) -> None:
        if end[0] > start[0]:
            draw(
                link,
                "across",
                size,
                start,
                (start[0] + 0.42, start[1]),
                (end[0] - 0.42, end[1]),
                end,
            )
        else:  # back to the first node: leaves right and enters left
            draw(link, "across", size, start, (nodes - 1 + 2 * REACH, start[1]))
            draw(link, "across", size, (-2 * REACH, end[1]), end)

    uses: dict[
        int, dict[int, int]
    ] = {}  # the bytes between the one card of a node and each of its GPUs, the busier way
    between: dict[tuple[int, int], int] = {}
    for (source, destination), size in carried.items():
        (node, place), (to, to_place) = divmod(source, node_size), divmod(destination, node_size)
        link = f"GPU {source} to {destination}"
        if node != to and shared:
            uses.setdefault(node, {})[place] = uses.setdefault(to, {})[to_place] = size
            between[node, to] = between.get((node, to), 0) + size
        elif node != to:
            cross(link, size, (node, place), (to, to_place))
        elif to_place > place:
            draw(link, "inside", size, (node, place), (to, to_place))
        elif place - to_place > 1:  # back to the first GPU, beside the column
            draw(
                link,
                "inside",
                size,
                (node, place),
                (node - REACH, place - 0.4),
                (node - REACH, to_place + 0.4),
                (to, to_place),
            )
    for (node, to), size in between.items():
        trunk, card = f"node {node} to its card", (node + CARD, _card_row(node_size))
        for place, part in sorted(uses[node].items()):
            draw(
                f"GPU {node * node_size + place} to its card",
                "across",
                part,
                (node, place),
                (card[0], place),
            )
        draw(trunk, "across", size, (card[0], min(uses[node])), card)
        cross(f"node {node} to {to}", size, card, (to + CARD, card[1]))
    return rows


def _card_row(node_size: int) -> float:
    """Where the one card of a node is drawn: under its GPUs."""
    return node_size - 0.1


def _cards(
    carried: dict[tuple[int, int], int], node_size: int, ranks: int, shared: bool
) -> list[dict[str, Any]]:
    """Every network card, and what it does."""
    leaving = [pair for pair in carried if pair[0] // node_size != pair[1] // node_size]
    sends, receives = ({pair[end] for pair in leaving} for end in (0, 1))
    if shared:
        return [
            {"node": node + CARD, "place": _card_row(node_size), "card": "sends"}
            for node in range(ranks // node_size)
        ]
    return [
        {
            "node": rank // node_size + CARD,
            "place": rank % node_size,
            "card": "sends" if rank in sends else "receives" if rank in receives else "idle",
        }
        for rank in range(ranks)
    ]


def _topology(nodes: int, node_size: int, algorithm: str, payload: int, shared: bool) -> Shown:
    ranks = nodes * node_size
    schedule = _made(
        "all_reduce", algorithm, ranks, node_size=None if algorithm == "ring" else node_size
    )
    network = Network.named(
        H100.name,
        inside_latency_s=INSIDE_LATENCY_S,
        across_latency_s=ACROSS_LATENCY_S,
        node_size=node_size,
        ranks_per_card=node_size if shared else 1,
    )
    sent = count_bytes_by_tier(schedule, network, payload)
    leaves = int(sent["across"][:node_size].sum())
    cards = 1 if shared else int((sent["across"][:node_size] > 0).sum())
    card = leaves if shared else int(sent["across"].max())
    whole = time_s(schedule, network, payload)
    inside_s = (
        0.0 if algorithm == "ring" else hierarchical_cost(payload, ranks, network).inside.total_s
    )
    boxes = [
        {
            "left": node - 0.45,
            "right": node + 0.45,
            "top": -0.55,
            "bottom": node_size - 0.45,
            "node": node,
            "at": -0.85,
            "title": f"node {node}",
        }
        for node in range(nodes)
    ]
    gpus = [
        {"node": rank // node_size, "place": rank % node_size, "rank": str(rank)}
        for rank in range(ranks)
    ]
    frame = [
        {
            "left": -2 * REACH,
            "right": nodes - 1 + 2 * REACH,
            "top": -1.05,
            "bottom": _card_row(node_size) + 0.25 if shared else node_size - 0.4,
        }
    ]
    name = dict(zip(ALGORITHMS.values, ALGORITHMS.texts, strict=True))[algorithm]
    apart = ("–", "–") if algorithm == "ring" else (duration(inside_s), duration(whole - inside_s))
    outlined = "; outlined in color, it receives" if algorithm == "ring" and not shared else ""
    carried = _carried(schedule, payload)
    return Shown(
        {
            "links": _lines(carried, node_size, nodes, shared),
            "boxes": boxes,
            "gpus": gpus,
            "cards": _cards(carried, node_size, ranks, shared),
            "frame": frame,
        },
        {
            "inside": si(sent["inside"].max()),
            "leaves": si(leaves),
            "card": f"{si(card)} ({cards} of {1 if shared else node_size})",
            "inside_s": apart[0],
            "across_s": apart[1],
            "whole": duration(whole),
        },
        f"A {name} all-reduce of {binary(payload)} on {nodes} nodes of {node_size} GPUs: "
        f"{si(leaves)} leave each node through {cards} network card{'s' * (cards > 1)} "
        f"(filled squares{outlined}), and it takes {duration(whole)}.",
    )


def _topology_chart() -> alt.LayerChart:
    tiers = Looks(TIERS)
    plain = {"zero": False, "nice": False, "padding": 0}
    x = alt.X("left:Q", title=None, axis=None, scale=alt.Scale(**plain))
    y = alt.Y("top:Q", title=None, axis=None, scale=alt.Scale(**plain, reverse=True))
    frame = table("frame").mark_rect(opacity=0).encode(x=x, x2="right", y=y, y2="bottom")
    boxes = table("boxes")
    box = boxes.mark_rect(
        fill=COLORS[0], fillOpacity=0.06, stroke=INK, strokeOpacity=0.35, cornerRadius=6
    ).encode(x=alt.X("left:Q"), x2="right", y=alt.Y("top:Q"), y2="bottom")
    title = boxes.mark_text(fontSize=12).encode(x=alt.X("node:Q"), y=alt.Y("at:Q"), text="title:N")
    links = (
        table("links")
        .mark_rule(opacity=0.9)
        .encode(
            x=alt.X("x:Q"),
            x2="x2",
            y=alt.Y("y:Q"),
            y2="y2",
            color=tiers.color("tier"),
            strokeDash=tiers.dash("tier"),
            strokeWidth=alt.StrokeWidth(
                "link_GB:Q", legend=None, scale=alt.Scale(zero=True, range=[1, 6])
            ),
        )
    )
    gpus = table("gpus")
    places = {"x": alt.X("node:Q"), "y": alt.Y("place:Q")}
    cards = table("cards").encode(**places)
    filled = cards.transform_filter("datum.card == 'sends'").mark_point(
        shape="square", size=90, opacity=1, filled=True, color=COLORS[1]
    )
    hollow = (
        cards.transform_filter("datum.card != 'sends'")
        .mark_point(shape="square", size=90, filled=False, strokeWidth=1.5)
        .encode(
            stroke=alt.condition("datum.card == 'receives'", alt.value(COLORS[1]), alt.value(INK)),
            opacity=alt.condition("datum.card == 'receives'", alt.value(1), alt.value(0.4)),
        )
    )
    dot = gpus.mark_point(size=420, opacity=1, filled=True, color=COLORS[0]).encode(**places)
    rank = gpus.mark_text(fontSize=11, color="white", fontWeight="bold").encode(
        **places, text="rank:N"
    )
    return alt.layer(frame, box, title, links, filled, hollow, dot, rank)


topology = Explorer(
    name="topology",
    title="One all-reduce on two tiers, and the bill of each",
    model=_topology,
    controls=(
        Control("nodes", "Nodes N", NODES, start=2),
        Control("node_size", "GPUs a node w", NODE_SIZES, start=8),
        ALGORITHMS,
        Control("payload", "Payload S", BILL_SIZES, tuple(map(binary, BILL_SIZES)), start=GiB),
        CARDS,
    ),
    readouts={
        "inside": "Busiest GPU sends inside",
        "leaves": "Leaves each node",
        "card": "Busiest card sends",
        "inside_s": "Time inside",
        "across_s": "Time across",
        "whole": "Time in all",
    },
    columns={
        "link": Column("Link"),
        "tier": Column("Tier"),
        "link_GB": Column("Bytes in all (GB)", ".4~g"),
    },
    chart=_topology_chart(),
    height=360,
)
