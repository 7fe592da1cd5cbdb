"""The lab: an all-reduce on the reader's own processes, measured beside what was predicted.

In a notebook it is a panel with buttons (`dtlib.views.panel`). A published page has no processes:
it shows the run that was recorded when the book was built, and says how to do it oneself.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from dtlib.network import Network, Tier
from dtlib.ranks import Cluster
from dtlib.ranks.measure import Measurement, measurements
from dtlib.simulators.checker import check
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.schedule import Schedule
from dtlib.units import KiB, MiB, binary, count_text, duration, si
from dtlib.views.table import STYLE, Table

__all__ = ["HEADINGS", "Lab", "all_reduce_lab", "cells", "description", "hierarchy_lab"]

OWN = "your own"
MOST_STEPS = 10_000
HEADINGS = (
    "Algorithm",
    "Ranks",
    "Payload",
    "Bytes sent",
    "by formula",
    "Time",
    "by clock",
    "Ratio",
)


def cells(one: Measurement) -> tuple[str, ...]:
    """A measurement as a row of text."""
    predicted = (
        ("not modeled", "–")
        if one.predicted_s is None
        else (duration(one.predicted_s), f"{one.time_s / one.predicted_s:.2f}")
    )
    return (
        one.algorithm,
        str(one.ranks),
        binary(one.payload_bytes),
        count_text(one.sent_bytes),
        count_text(one.predicted_bytes),
        duration(one.time_s),
        *predicted,
    )


def description(network: Network | None) -> str:
    """A network in words."""
    if network is None:
        return "this machine, as fast as it goes"
    tiers = [
        f"{si(tier.bandwidth_Bps, 'B/s')} each way, {duration(tier.latency_s)}"
        for tier in network.tiers
    ]
    names = [tier.name for tier in network.tiers] if len(tiers) > 1 else [""]
    return "described: " + "; ".join(
        f"{name} {text}".strip() for name, text in zip(names, tiers, strict=True)
    )


@dataclass(frozen=True)
class Lab:
    """What can be chosen in the lab, and what is run for the record.

    payloads_bytes, ranks, networks   the choices of the panel recorded
    (algorithm, ranks, payload) of each line of the published page, on ``networks[0]`` own
    the reader's own function from ranks to the steps of an all-reduce, on ranks chunks
    """

    name: str
    title: str
    payloads_bytes: tuple[int, ...]
    ranks: tuple[int, ...]
    networks: tuple[Network | None, ...]
    recorded: tuple[tuple[str, int, int], ...]
    own: Callable[[int], Any] | None = None

    def __call__(self, own: Callable[[int], Any]) -> Lab:
        """The same lab, with the reader's own schedule among the algorithms."""
        if not callable(own):
            raise TypeError(f"own must be a function from ranks to steps, got {own!r}")
        return replace(self, own=own)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Every schedule of an all-reduce, the reader's own first."""
        return (*((OWN,) if self.own else ()), *ALGORITHMS["all_reduce"])

    @property
    def start(self) -> tuple[str, int, int]:
        """What the panel shows first: the first line of the record."""
        return self.recorded[0]

    def schedule(self, algorithm: str, ranks: int) -> Schedule:
        """The schedule of this name, or the reader's own."""
        return (
            self._own(ranks)
            if algorithm == OWN and self.own
            else make("all_reduce", algorithm, ranks)
        )

    def _own(self, ranks: int) -> Schedule:
        """What the reader's function makes; a ValueError says how it is no all-reduce yet."""
        name, steps = getattr(self.own, "__name__", OWN).replace("<lambda>", OWN), self.own(ranks)
        if isinstance(steps, Iterator):
            steps = list(itertools.islice(steps, MOST_STEPS + 1))
        if isinstance(steps, Sized) and len(steps) > MOST_STEPS:
            raise ValueError(
                f"{name} must end within {MOST_STEPS:,} steps: does every loop come to its end?"
            )
        if steps is ... or (isinstance(steps, list) and len(steps) == 1 and steps[0] is ...):
            raise ValueError(
                f"{name} is not written yet: write it in its exercise, or choose another algorithm"
            )
        try:
            schedule = Schedule(name, "all_reduce", ranks=ranks, chunks=ranks, steps=steps)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} makes no schedule yet: {error}") from error
        report = check(schedule)
        if not report.ok:
            raise ValueError(f"{name} is no all-reduce yet: {report}")
        return schedule

    def record(self) -> list[Measurement]:
        """Run what is recorded; on each line the median of three."""
        lines = []
        for algorithm, ranks, payload_bytes in self.recorded:
            with Cluster(ranks) as cluster:
                schedule = self.schedule(algorithm, ranks)
                *_, last = measurements(
                    cluster, payload_bytes, schedule, network=self.networks[0], rounds=3
                )
            lines.append(last)
        return lines

    def html(self) -> str:
        """The recorded run, for a page."""
        caption = (
            f"Recorded when this page was built, on {os.cpu_count()} cores; the network is "
            f"{description(self.networks[0])}"
        )
        table = Table(caption, HEADINGS, [cells(one) for one in self.record()])
        return (
            f'<div class="dt-lab" id="lab-{self.name}">'
            f'<p class="dt-title">{escape(self.title)}</p>{table.html()}{STYLE}'
            "<p>Bytes are those of the busiest rank, counted as they were sent; a time is the "
            "median of three runs on one "
            "machine. To run it on your own processes, with other sizes and algorithms, and to "
            "kill a rank in the middle, "
            "open this chapter with <code>make lab</code>.</p></div>"
        )

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from dtlib.views import host

        return host.mimebundle(self)


# Slow links on purpose: what the processors of a laptop add is then small beside what the network
# takes.
all_reduce_lab = Lab(
    name="all-reduce",
    title="An all-reduce on real processes",
    payloads_bytes=(0, KiB, 64 * KiB, MiB, 4 * MiB, 16 * MiB),
    ranks=(2, 3, 4, 8),
    networks=(Network.flat(bandwidth_Bps=25e6, latency_s=1e-3), None),
    recorded=tuple(
        (algorithm, 4, MiB)
        for algorithm in ("ring", "naive", "tree", "double_tree", "halving_doubling")
    ),
)

# Two tiers, 18 to 1, in nodes of two.
hierarchy_lab = Lab(
    name="hierarchy",
    title="An all-reduce on two tiers",
    payloads_bytes=(0, KiB, 64 * KiB, MiB, 4 * MiB),
    ranks=(4, 8),
    networks=(
        Network((Tier("inside", 180e6, 2e-4, node_size=2), Tier("across", 10e6, 1e-3))),
        None,
    ),
    recorded=(
        ("ring", 4, MiB),
        ("hierarchical", 4, MiB),
        ("ring", 8, MiB),
        ("hierarchical", 8, MiB),
    ),
)
