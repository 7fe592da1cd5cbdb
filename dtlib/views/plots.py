"""Static figures: measured data, and who sent what to whom."""

from __future__ import annotations

from collections.abc import Sequence

from dtlib.facts.registry import accelerator, fact
from dtlib.facts.sweeps import sweep
from dtlib.formulas.collectives import bus_bandwidth_Bps
from dtlib.formulas.hierarchy import hierarchical_cost
from dtlib.network import Network
from dtlib.simulators.execute import Event
from dtlib.units import GB, GiB, KiB, MiB, binary, duration, si
from dtlib.views.picture import Picture, axes
from dtlib.views.theme import COLORS

__all__ = ["measured_bus_bandwidth", "measured_exit", "space_time"]


def measured_bus_bandwidth() -> Picture:
    """The bus bandwidth of a measured all-reduce sweep on eight H100, with the wire's rate and the
    measured ring's.
    """
    measured = sweep("nccl-8xh100")
    bus_Bps = bus_bandwidth_Bps(
        measured.collective, measured.payload_bytes, measured.time_s, measured.ranks
    )
    wire_Bps, ring_Bps = accelerator("H100-SXM").scaleup_Bps, fact("bus-8xh100.ring").each_way_Bps
    best = int(bus_Bps.argmax())
    picture = axes(width_in=5.6, height_in=3.4)
    picture.plot(measured.payload_bytes, bus_Bps / GB, marker="o", markersize=4, color=COLORS[0])
    for rate_Bps, dash, what in (
        (wire_Bps, "-", "NVLink 4, one way (nominal)"),
        (ring_Bps, "--", "ring (measured)"),
    ):
        picture.axhline(rate_Bps / GB, linestyle=dash, linewidth=1.5, color=COLORS[1])
        picture.text(8, rate_Bps / GB + 8, f"{si(rate_Bps, 'B/s')}: {what}")
    picture.set_xscale("log", base=2)
    sizes = (8, KiB, 32 * KiB, MiB, 32 * MiB, GiB, 16 * GiB)
    picture.set_xticks(sizes, [binary(size) for size in sizes])
    picture.set(xlabel="Payload S", ylabel="Bus bandwidth (GB/s)", ylim=(0, 540))
    return Picture(
        picture.figure,
        (
            f"Measured: all-reduce on {measured.ranks} H100 in one node, whose switches add, as we "
            "take it. Bus bandwidth is near "
            "zero for small payloads, where a call takes at least "
            f"{duration(measured.time_s.min(), 2)}, and reaches "
            f"{si(bus_Bps[best], 'B/s')} at {binary(measured.payload_bytes[best])}, above the "
            f"{si(wire_Bps, 'B/s')} of the "
            f"wire and the {si(ring_Bps, 'B/s')} of a ring."
        ),
    )


def measured_exit() -> Picture:
    """How many times as long an all-reduce took on two nodes as on one, measured, and what bytes
    alone would make of it.
    """
    two, one = sweep("nccl-16xh100-two-nodes"), sweep("nccl-8xh100")
    sizes = [
        size for size in two.payload_bytes.tolist() if size in one.payload_bytes and size >= 64
    ]
    ratios = [two.at(size) / one.at(size) for size in sizes]
    h100, nic_Bps = accelerator("H100-SXM"), fact("a3-mega.nic").each_way_Bps
    network = Network.of_nodes(
        one.ranks,
        inside_Bps=h100.scaleup_Bps,
        across_Bps=nic_Bps,
        inside_latency_s=0.0,
        across_latency_s=0.0,
    )
    both = hierarchical_cost(GiB, two.ranks, network)
    least, most = both.overlapped_s / both.inside.total_s, both.total_s / both.inside.total_s
    link = h100.scaleup_Bps / nic_Bps
    picture = axes(width_in=5.6, height_in=3.2)
    picture.axhspan(least, most, color=COLORS[1], alpha=0.25, linewidth=0)
    picture.text(64, most + 0.3, f"bytes alone: {least:.1f} (overlapped) to {most:.1f} (in turn)")
    picture.axhline(link, linestyle="--", linewidth=1.5, color=COLORS[1])
    picture.text(64, link - 1.1, f"{link:.0f}: the links' ratio")
    picture.plot(sizes, ratios, marker="o", markersize=4, color=COLORS[0])
    picture.set_xscale("log", base=2)
    ticks = (KiB, 32 * KiB, MiB, 32 * MiB, GiB)
    picture.set_xticks(ticks, [binary(size) for size in ticks])
    picture.set(
        xlabel="Payload S", ylabel="Two nodes / one node", ylim=(0, 19), yticks=(0, 5, 10, 15)
    )
    return Picture(
        picture.figure,
        (
            f"Measured: an all-reduce on {two.ranks} H100 in two nodes, against {one.ranks} in one "
            "node of another machine. Up to "
            f"{binary(16 * MiB)} it takes {min(ratios[: sizes.index(16 * MiB) + 1]):.0f} to "
            f"{max(ratios):.0f} times as long; then it "
            f"nears what the bytes cost: {ratios[sizes.index(GiB)]:.1f} times at {binary(GiB)}, "
            f"{ratios[-1]:.1f} at "
            f"{binary(sizes[-1])}. The links differ by {link:.0f}."
        ),
    )


def space_time(events: Sequence[Event]) -> Picture:
    """Every transfer as an arrow from its sender's line to its receiver's: of a simulated log
    against the steps, and of the trace of a real run, which has times, against the clock.
    """
    if not events:
        raise ValueError(f"events must hold a transfer or more, got {events!r}")
    timed = events[0].start_s is not None
    first_s = min(event.start_s for event in events) if timed else 0.0
    picture = axes(width_in=5.6, height_in=2.8)
    for event in events:
        span = (
            (event.start_s - first_s, event.end_s - first_s)
            if timed
            else (event.step, event.step + 1)
        )
        scaled = [at * 1e3 for at in span] if timed else span
        picture.annotate(
            "",
            xy=(scaled[1], event.destination),
            xytext=(scaled[0], event.source),
            arrowprops={
                "arrowstyle": "->",
                "color": COLORS[1 if event.reduce else 3],
                "linestyle": "-" if event.reduce else "--",
            },
        )
        picture.plot(
            scaled, (event.source, event.destination), linestyle="none"
        )  # so that the axes reach it
    ranks = sorted({rank for event in events for rank in (event.source, event.destination)})
    picture.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
    picture.invert_yaxis()
    picture.set_xlabel("Time (ms)" if timed else "Steps done")
    added, copied = (
        sum(bool(event.reduce) for event in events),
        sum(not event.reduce for event in events),
    )
    when = (
        f"in {duration(max(event.end_s for event in events) - first_s)}"
        if timed
        else (f"in {max(event.step for event in events) + 1} steps")
    )
    return Picture(
        picture.figure,
        f"{len(events)} transfers among {len(ranks)} ranks {when}: {added} add what they bring "
        f"(solid), {copied} replace what was there (dashed).",
    )
