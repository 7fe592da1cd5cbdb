"""The explorers of the all-reduce chapter."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from dtlib.assumptions import ACROSS_LATENCY_S
from dtlib.formulas.collectives import bytes_sent, cost
from dtlib.formulas.regimes import balance_bytes
from dtlib.network import Network
from dtlib.simulators.collectives import make
from dtlib.simulators.execute import execute
from dtlib.units import GB, MB, GiB, KiB, MiB, binary, count_text, duration, si
from dtlib.views.charts import Looks, curves, log_axis, payload_axis, rule, table, time_axis
from dtlib.views.explorer import Column, Control, Explorer, Shown
from dtlib.views.theme import COLORS, INK

__all__ = ["bytes_per_rank", "ring", "time_against_ranks", "time_against_size"]

ALGORITHMS = {
    "ring": "ring",
    "tree": "naive tree",
    "double_tree": "double tree",
    "halving_doubling": "halving-doubling",
}
ROOT = "naive (rank 0)"
# Each algorithm keeps its color, dash and shape through the chapter.
LOOKS = Looks((*ALGORITHMS.values(), ROOT))


# --- The ring, step by step -----------------------------------------------------------------------

CELL, ROW = 0.35, 0.41  # half of a cell's width and height; ranks and chunks are 1 apart
EDGE = 0.72  # how far beyond the outer ranks the ring's closing transfer is drawn
MOST_RANKS = 8


def _arrows(events: list[Any], ranks: int) -> list[dict[str, Any]]:
    """The transfers of a step as lines from column to column; the closing one leaves right and
    enters left.
    """
    rows = []
    for event in events:
        ends = [(event.source + CELL, event.destination - CELL)]
        if event.destination < event.source:
            ends = [(event.source + CELL, ranks - 1 + EDGE), (-EDGE, event.destination - CELL)]
        rows += [
            {"x": x, "x2": x2, "y": event.chunk, "does": "adds" if event.reduce else "replaces"}
            for x, x2 in ends
        ]
    return rows


def _ring(ranks: int, step: int) -> Shown:
    log = execute(make("all_reduce", "ring", ranks), [np.ones(ranks, dtype=np.int8)] * ranks)
    steps = len(log.schedule.steps)
    now = [event for event in log.events if event.step == step - 1]
    arrived = {(event.destination, event.chunk): event for event in now}
    sent = sum(event.bytes for event in log.events if event.step < step and event.source == 0)
    held = log.holdings[step]
    complete = int((held[0] == ranks).sum())
    phase = (
        "reduce-scatter"
        if now and now[0].reduce
        else "all-gather"
        if now
        else "before the first step"
    )

    cells = []
    for rank, chunk in np.ndindex(held.shape):
        event, count = arrived.get((rank, chunk)), int(held[rank, chunk])
        cells.append(
            {
                "rank": rank,
                "chunk": chunk,
                "held": count,
                "share": count / ranks,
                "text": f"{count}/{ranks}",
                "size": 13 if ranks < 6 else 11,
                "arrived": f"{'added to' if event.reduce else 'replaced'} by rank {event.source}"
                if event
                else "unchanged",
            }
        )
    frame = [{"x": -EDGE, "x2": ranks - 1 + EDGE, "y": -ROW - 0.05, "y2": ranks - 1 + ROW + 0.05}]
    return Shown(
        {"cells": cells, "arrows": _arrows(now, ranks), "frame": frame},
        {
            "phase": phase,
            "step": f"{step} of {steps}",
            "sent": f"{sent} × S/{ranks} = {sent / ranks:.3g} × S",
            "complete": f"{complete} of {ranks}",
        },
        f"Ring of {ranks} ranks, {f'after {step} of {steps} steps ({phase})' if step else phase}: "
        "each rank has sent "
        f"{sent} chunk{'s' * (sent != 1)} of S/{ranks} and holds {complete} complete.",
    )


def _ring_chart() -> alt.LayerChart:
    span = {"zero": False, "nice": False, "padding": 0}
    numbered = {
        "tickMinStep": 1,
        "tickCount": 10,
        "format": "d",
        "grid": False,
        "domain": False,
        "ticks": False,
        "labelFontSize": 13,
    }
    x = alt.X(
        "left:Q", title="Rank", scale=alt.Scale(**span), axis=alt.Axis(**numbered, orient="top")
    )
    y = alt.Y(
        "top:Q",
        title="Chunk",
        scale=alt.Scale(**span, reverse=True),
        axis=alt.Axis(
            **numbered,
            labelPadding=10,
            titleAngle=0,
            titleAlign="left",
            titleAnchor="start",
            titleX=-22,
            titleY=-30,
        ),
    )
    frame = (
        table("frame")
        .mark_rect(opacity=0)
        .encode(x=x.copy(), x2="x2", y=y.copy(), y2="y2")
        .transform_calculate(left="datum.x", top="datum.y")
    )
    box = table("cells").transform_calculate(
        left=f"datum.rank - {CELL}",
        right=f"datum.rank + {CELL}",
        top=f"datum.chunk - {ROW}",
        bottom=f"datum.chunk + {ROW}",
        new="datum.arrived != 'unchanged'",
        complete="datum.share == 1",
    )
    cells = box.mark_rect(cornerRadius=4, stroke=INK).encode(
        x=x,
        x2="right",
        y=y,
        y2="bottom",
        fill=alt.condition("datum.complete", alt.value(COLORS[2]), alt.value(COLORS[0])),
        fillOpacity=alt.condition(
            "datum.complete",
            alt.value(0.5),
            alt.FillOpacity(
                "share:Q", scale=alt.Scale(domain=[0, 1], range=[0.04, 0.5]), legend=None
            ),
        ),
        strokeWidth=alt.condition("datum.new", alt.value(2), alt.value(0.5)),
        strokeOpacity=alt.condition("datum.new", alt.value(1), alt.value(0.35)),
    )
    place = {"x": alt.X("rank:Q"), "y": alt.Y("chunk:Q"), "size": alt.Size("size:Q", scale=None)}
    texts = (
        box.mark_text(baseline="middle")
        .encode(**place, text="text:N")
        .transform_filter("datum.share < 1")
    )
    full = (
        box.mark_text(baseline="middle", fontWeight="bold")
        .encode(**place, text="text:N")
        .transform_filter("datum.share == 1")
    )
    does = Looks(("adds", "replaces"), colors=(COLORS[1], COLORS[3]), dashes=([1, 0], [3, 2]))
    color = does.color("does", title="What arrives")
    moves = table("arrows")
    lines = moves.mark_rule(strokeWidth=2.5).encode(
        x="x:Q",
        x2="x2:Q",
        y="y:Q",
        color=color,
        strokeDash=does.dash("does", title="What arrives"),
    )
    tips = moves.mark_point(
        shape="triangle-right", size=75, opacity=1, filled=True, xOffset=-3
    ).encode(x="x2:Q", y="y:Q", color=color)
    return alt.layer(frame, cells, texts, full, lines, tips)


ring = Explorer(
    name="ring",
    title="A ring all-reduce, chunk by chunk",
    model=_ring,
    controls=(
        Control("ranks", "Ranks K", tuple(range(2, MOST_RANKS + 1)), start=4),
        Control(
            "step",
            "Steps done",
            tuple(range(2 * MOST_RANKS - 1)),
            start=1,
            play=True,
            limit=lambda ranks: len(make("all_reduce", "ring", ranks).steps) + 1,
        ),
    ),
    readouts={
        "phase": "Phase",
        "step": "Steps done",
        "sent": "Sent by each rank",
        "complete": "Complete chunks per rank",
    },
    columns={
        "rank": Column("Rank"),
        "chunk": Column("Chunk"),
        "held": Column("Contributions held"),
        "arrived": Column("In this step"),
    },
    chart=_ring_chart(),
    height=380,
)


# --- Bytes against the number of ranks ------------------------------------------------------------

BYTES_OF = {"ring": "ring", "tree": "naive tree", "naive": ROOT}
BYTE_RANKS = tuple(2**power for power in range(1, 11))
BYTE_SIZES = (100 * MB, 200 * MB, 500 * MB, 1 * GB, 2 * GB, 5 * GB, 10 * GB)


def _bytes_per_rank(ranks: int, payload: int) -> Shown:
    counts = np.array(BYTE_RANKS)
    rows = [
        {"ranks": n, "algorithm": name, "sent_GB": sent / GB, "mark": True}
        for key, name in BYTES_OF.items()
        for n, sent in zip(BYTE_RANKS, bytes_sent("all_reduce", key, payload, counts), strict=True)
    ]
    sent = {key: si(bytes_sent("all_reduce", key, payload, ranks), digits=4) for key in BYTES_OF}
    return Shown(
        {"curves": rows, "here": [{"at": ranks}]},
        sent,
        f"All-reducing {si(payload)} over {count_text(ranks)} ranks, the busiest rank sends "
        f"{sent['ring']} in a "
        f"ring, {sent['tree']} in a naive tree and {sent['naive']} when rank 0 does everything.",
    )


def _bytes_chart() -> alt.LayerChart:
    values = (0.1, 1, 10, 100, 1000, 10000)
    sent = log_axis(
        alt.Y, "sent_GB", "Sent by the busiest rank (GB)", (0.08, 1.3e4), values, format=","
    )
    ranks = _ranks_axis(BYTE_RANKS[-1], (2, 8, 32, 128, 512))
    looks = LOOKS.only(*BYTES_OF.values())
    return curves(looks, "algorithm", ranks, sent, rule(table("here"), x="at:Q"))


def _ranks_axis(most: int, values: tuple[int, ...]) -> alt.X:
    return log_axis(alt.X, "ranks", "Ranks K", (1.8, most * 1.15), values, format=",d", grid=False)


bytes_per_rank = Explorer(
    name="bytes-per-rank",
    title="Bytes the busiest rank sends, against the number of ranks",
    model=_bytes_per_rank,
    controls=(
        Control("ranks", "Ranks K", BYTE_RANKS, tuple(count_text(n) for n in BYTE_RANKS), start=8),
        Control(
            "payload", "Payload S", BYTE_SIZES, tuple(si(size) for size in BYTE_SIZES), start=GB
        ),
    ),
    readouts={"ring": "Ring", "tree": "Naive tree", "naive": "Naive, rank 0"},
    columns={
        "ranks": Column("Ranks K", ",d"),
        "algorithm": Column("Algorithm"),
        "sent_GB": Column("Sent by the busiest rank (GB)", ".4~g"),
    },
    chart=_bytes_chart(),
    height=300,
)


# --- Time -----------------------------------------------------------------------------------------

SIZES = tuple(2**power for power in range(10, 33))
RANKS = tuple(2**power for power in range(1, 15))
SIZE_RANKS = (2, 4, 8, 16, 64, 256, 1024, 4096, 16384)
PAYLOADS = tuple(2**power for power in range(10, 33, 2))
TIMES = tuple(10.0**power for power in range(-6, 2))
WIDEST = SIZES[-1] * 1.2  # the right border


def _link(
    latencies_s: tuple[float, ...], bandwidths_Bps: tuple[float, ...]
) -> tuple[Control, Control]:
    return (
        Control(
            "latency",
            "Latency α",
            latencies_s,
            tuple(map(duration, latencies_s)),
            start=ACROSS_LATENCY_S,
        ),
        Control(
            "bandwidth",
            "Bandwidth B, each way",
            bandwidths_Bps,
            tuple(si(rate, "B/s") for rate in bandwidths_Bps),
            start=50e9,
        ),
    )


def _seconds(payload: Any, ranks: Any, network: Network) -> dict[str, Any]:
    """The time of each algorithm, by its name in ``dtlib``."""
    return {key: cost("all_reduce", key, payload, ranks, network).total_s for key in ALGORITHMS}


def _fastest(payload: int, ranks: int, network: Network) -> str:
    times = _seconds(payload, ranks, network)
    quickest = min(times.values())
    return " or ".join(
        ALGORITHMS[key] for key, time in times.items() if time <= quickest * (1 + 1e-9)
    )


def _time_curves(x: alt.X, *below: alt.Chart) -> alt.LayerChart:
    looks = LOOKS.only(*ALGORITHMS.values())
    return curves(looks, "algorithm", x, time_axis(alt.Y, "time_s", TIMES), *below)


def _time_against_size(ranks: int, latency: float, bandwidth: float) -> Shown:
    sizes, network = np.array(SIZES), Network.flat(bandwidth, latency)
    rows = [
        {"payload": size, "algorithm": ALGORITHMS[key], "time_s": time, "mark": position % 4 == 2}
        for key, times in _seconds(sizes, ranks, network).items()
        for position, (size, time) in enumerate(zip(SIZES, times, strict=True))
    ]
    parts = cost("all_reduce", "ring", sizes, ranks, network)
    floor = float(cost("all_reduce", "ring", 0, ranks, network).latency_s)
    balance = balance_bytes("all_reduce", "ring", ranks, network)
    asymptotes = [
        {"size": size, "floor_s": floor, "wire_s": wire}
        for size, wire in zip(SIZES, parts.transfer_s, strict=True)
    ]
    along = np.log(balance / SIZES[0]) / np.log(
        SIZES[-1] / SIZES[0]
    )  # a side of the edge is named where there is room
    shade = [
        {
            "from": SIZES[0],
            "to": float(min(balance, WIDEST)),
            "left": "◂ latency" if along > 0.25 else "",
            "right": "bytes ▸" if along < 0.8 else "",
        }
    ]
    edge = [{"edge": float(balance)}] if balance <= SIZES[-1] else []
    drawn = next(place for place, row in enumerate(asymptotes) if row["wire_s"] >= TIMES[0])
    middle = asymptotes[drawn + 3]
    named = {"start": "", "end": "", "under": ""}
    names = [
        {"size": SIZES[-1], "part_s": floor, **named, "end": "latency part"}
        if along < 0.75
        else {"size": SIZES[0], "part_s": floor, **named, "start": "latency part"},
        {"size": middle["size"], "part_s": middle["wire_s"], **named, "under": "bytes part"},
    ]
    whole = cost("all_reduce", "ring", GiB, ranks, network).total_s
    return Shown(
        {"curves": rows, "asymptotes": asymptotes, "shade": shade, "edge": edge, "names": names},
        {
            "floor": duration(floor),
            "balance": binary(balance),
            "gib": duration(whole),
            "small": _fastest(4 * KiB, ranks, network),
            "large": _fastest(GiB, ranks, network),
        },
        f"On {count_text(ranks)} ranks the ring never takes less than {duration(floor)}; it pays "
        f"mostly latency below {binary(balance)} and mostly bytes above, and all-reduces 1 GiB in "
        f"{duration(whole)}.",
    )


def _size_chart() -> alt.LayerChart:
    shade = table("shade")
    band = shade.mark_rect(color=COLORS[0], opacity=0.12).encode(x=alt.X("from:Q"), x2="to:Q")
    edge = table("edge").mark_rule(color=COLORS[0], strokeWidth=1.5).encode(x=alt.X("edge:Q"))
    left = shade.mark_text(align="right", dx=-5, fontSize=12).encode(
        x="to:Q", y=alt.value(12), text="left:N"
    )
    right = shade.mark_text(align="left", dx=5, fontSize=12).encode(
        x="to:Q", y=alt.value(12), text="right:N"
    )
    dotted = {"strokeDash": [1, 4], "strokeWidth": 1.5, "color": INK}
    lines = table("asymptotes")
    floor = lines.mark_line(**dotted).encode(x="size:Q", y="floor_s:Q")
    wire = (
        lines.transform_filter(f"datum.wire_s >= {TIMES[0]}")
        .mark_line(**dotted)
        .encode(x="size:Q", y="wire_s:Q")
    )
    names = table("names").encode(x="size:Q", y="part_s:Q")
    texts = [
        names.mark_text(align=align, dx=dx, dy=dy, fontSize=11).encode(text=f"{where}:N")
        for where, align, dx, dy in (
            ("start", "left", 4, -9),
            ("end", "right", 0, -8),
            ("under", "left", 7, 7),
        )
    ]
    x = payload_axis("payload", (SIZES[0], WIDEST))
    return _time_curves(x, band, edge, left, right, floor, wire, *texts)


time_against_size = Explorer(
    name="time-against-size",
    title="Time of an all-reduce against its size",
    model=_time_against_size,
    controls=(
        Control("ranks", "Ranks K", SIZE_RANKS, tuple(count_text(n) for n in SIZE_RANKS), start=64),
        *_link((1e-6, 2e-6, 5e-6, 10e-6, 20e-6), (12.5e9, 25e9, 50e9, 100e9, 450e9)),
    ),
    readouts={
        "floor": "Ring, floor (latency)",
        "balance": "Ring, latency = bytes at",
        "gib": "Ring, 1 GiB",
        "small": "Fastest at 4 KiB",
        "large": "Fastest at 1 GiB",
    },
    columns={
        "payload": Column("Payload (B)", ",d"),
        "algorithm": Column("Algorithm"),
        "time_s": Column("Time (s)", ".3~g"),
        "floor_s": Column("Ring, latency part (s)", ".3~g"),
        "wire_s": Column("Ring, bytes part (s)", ".3~g"),
    },
    chart=_size_chart(),
    height=340,
)


def _time_against_ranks(payload: int, latency: float, bandwidth: float) -> Shown:
    network = Network.flat(bandwidth, latency)
    rows = [
        {"ranks": n, "algorithm": ALGORITHMS[key], "time_s": time, "mark": position % 2 == 0}
        for key, times in _seconds(payload, np.array(RANKS), network).items()
        for position, (n, time) in enumerate(zip(RANKS, times, strict=True))
    ]
    few, many = RANKS[2], RANKS[-1]
    ring_few = cost("all_reduce", "ring", payload, few, network).total_s
    ring_many = cost("all_reduce", "ring", payload, many, network)
    double = cost("all_reduce", "double_tree", payload, many, network).total_s
    return Shown(
        {"curves": rows},
        {
            "few": duration(ring_few),
            "hops": duration(ring_many.latency_s),
            "wire": duration(ring_many.transfer_s),
            "double": duration(double),
            "fastest": _fastest(payload, many, network),
        },
        f"{binary(payload)} takes a ring {duration(ring_few)} on {few} ranks and "
        f"{duration(ring_many.total_s)} on "
        f"{count_text(many)}; a double tree takes {duration(double)} there.",
    )


time_against_ranks = Explorer(
    name="time-against-ranks",
    title="Time of an all-reduce against the number of ranks",
    model=_time_against_ranks,
    controls=(
        Control(
            "payload", "Payload S", PAYLOADS, tuple(binary(size) for size in PAYLOADS), start=MiB
        ),
        *_link((1e-6, 5e-6, 20e-6), (25e9, 50e9, 450e9)),
    ),
    readouts={
        "few": "Ring, 8 ranks",
        "hops": "Ring, 16,384: hops",
        "wire": "Ring, 16,384: bytes",
        "double": "Double tree, 16,384",
        "fastest": "Fastest on 16,384",
    },
    columns={
        "ranks": Column("Ranks K", ",d"),
        "algorithm": Column("Algorithm"),
        "time_s": Column("Time (s)", ".3~g"),
    },
    chart=_time_curves(_ranks_axis(RANKS[-1], (2, 16, 128, 1024, 8192))),
    height=340,
)
