"""The exercises of the chapter on the hierarchy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dtlib.assumptions import ACROSS_LATENCY_S, INSIDE_LATENCY_S
from dtlib.facts.registry import accelerator, fact
from dtlib.formulas.hierarchy import TwoTierCost, hierarchical_cost, sent_by_tier
from dtlib.network import Network
from dtlib.simulators import checker
from dtlib.simulators.collectives import make
from dtlib.simulators.execute import contributions
from dtlib.simulators.schedule import Schedule
from dtlib.teaching.checks import FunctionCheck, NumberCheck, define
from dtlib.teaching.verdict import sentence
from dtlib.units import GB, MiB, binary, duration

__all__ = [
    "check_across",
    "check_hierarchical",
    "check_leaving",
    "check_node_size",
    "check_ratio",
    "check_two_tiers",
]

RACK = accelerator("GB200-NVL72")

check_ratio = define(
    "hierarchy-ratio",
    chapter="hierarchy",
    title="The ratio of another machine",
    kind="predict",
    minutes=3,
    points=1,
    task="A GB200 NVL72 is printed with 1.8 TB/s of NVLink per GPU; its network card has 400 Gb/s. "
    "How many times faster is "
    "NVLink, like for like?",
    check=NumberCheck(
        lambda: RACK.scaleup_Bps / RACK.nic_Bps,
        unit="times",
        both_directions=True,
        hints=(
            (
                lambda: fact("gb200-nvl72.scaleup_printed").value / RACK.nic_Bps,
                "That sets a sum of both directions against the rate of one.",
            ),
            (lambda: RACK.scaleup_Bps / 400e9, "One of the two is in bits. How many are a byte?"),
            (
                lambda: fact("gb200-nvl72.scaleup_printed").value / 400e9,
                "One of the two is in bits, and one is a sum of both directions.",
            ),
            (
                lambda: accelerator("H100-SXM").scaleup_Bps / RACK.nic_Bps,
                "That is an H100. This NVLink is faster.",
            ),
        ),
        explanation=(
            "The figure that is wrong for an H100 is right here, by a doubled NVLink and "
            "the same card."
        ),
    ),
)

LEAVING = {"payload_bytes": 10 * GB, "ranks": 128, "node_size": 8}

check_leaving = define(
    "hierarchy-leaving",
    chapter="hierarchy",
    title="What one card sends",
    kind="compute",
    minutes=5,
    points=1,
    task="A hierarchical all-reduce of 10 GB over 16 nodes of 8 GPUs, each with its own network "
    "card. How many bytes does one "
    "card send?",
    check=NumberCheck(
        lambda: sent_by_tier("hierarchical", **LEAVING).across,
        unit="bytes",
        hints=(
            (
                lambda: 2 * 10e9 / 8,
                "That is what it nears with very many nodes. Here there are 16.",
            ),
            (
                lambda: sent_by_tier("hierarchical", **LEAVING).across / 2,
                "That is one of two passes: an all-reduce is a reduce-scatter and an all-gather.",
            ),
            (
                lambda: sent_by_tier("hierarchical", **LEAVING).across * 2,
                "That adds what it receives.",
            ),
            (
                lambda: sent_by_tier("hierarchical", **LEAVING).node_across,
                "That is the whole node. Its cards share the work.",
            ),
            (
                lambda: sent_by_tier("ring", **LEAVING).node_across,
                "That is a flat ring, where one card sends it all.",
            ),
            (
                lambda: sent_by_tier("ring", **LEAVING).node_across / 8,
                "That is a ring of all 128. Across, how many ranks of one place are there?",
            ),
            (
                lambda: 10e9 / 8,
                "That is the share that each rank all-reduces. A ring sends more than its payload.",
            ),
            (
                lambda: sent_by_tier("hierarchical", **LEAVING).inside,
                "That is sent inside the node.",
            ),
        ),
        explanation="The share S/w, times 2(N - 1)/N for a ring of the N ranks of one place.",
    ),
)

H100 = accelerator("H100-SXM")
RATES = {"inside_Bps": H100.scaleup_Bps, "across_Bps": H100.nic_Bps}
NO_LATENCY = {"inside_latency_s": 0.0, "across_latency_s": 0.0}


def _timed(**changes: Any) -> TwoTierCost:
    return hierarchical_cost(8 * GB, 32, Network.of_nodes(8, **(RATES | NO_LATENCY | changes)))


def _time_ms(**changes: Any) -> float:
    return 1e3 * _timed(**changes).total_s


check_two_tiers = define(
    "hierarchy-two-tiers",
    chapter="hierarchy",
    title="Time on two tiers",
    kind="compute",
    minutes=6,
    points=2,
    task="A hierarchical all-reduce of 8 GB over 4 nodes of 8 H100: NVLink printed as 900 GB/s, a "
    "400 Gb/s card per GPU. How "
    "many milliseconds, without latency?",
    check=NumberCheck(
        _time_ms,
        unit="ms",
        hints=(
            (
                lambda: 1e3 * (2 * 8e9 / H100.scaleup_Bps + 2 * 1e9 / H100.nic_Bps),
                "That sends 2S on both tiers, as with very many ranks. Inside there are 8, and "
                "across 4.",
            ),
            (lambda: _time_ms() / 2, "That is one of two passes: everything goes there and back."),
            (
                lambda: _time_ms(inside_Bps=900e9),
                "That takes the printed NVLink rate for one direction.",
            ),
            (lambda: _time_ms(across_Bps=400e9), "That takes the card's bits for bytes."),
            (
                lambda: _time_ms(inside_Bps=900e9, across_Bps=400e9),
                "That takes the printed NVLink rate for one direction, and the card's bits for "
                "bytes.",
            ),
            (
                lambda: _time_ms(across_Bps=25e9),
                "That halves the rate of the card: 400 Gb/s is each way already.",
            ),
            (
                lambda: _time_ms(ranks_per_card=8),
                "That sends everything through one card. Here each GPU has its own.",
            ),
            (
                lambda: 1e3 * _timed().across.total_s,
                "That is the time across. Two phases run inside.",
            ),
            (
                lambda: 1e3 * _timed().inside.total_s,
                "That is the time inside. One phase runs across.",
            ),
        ),
        explanation=(
            "Half inside, half across: a link nine times slower, and an eighth of the bytes."
        ),
    ),
)


# --- Write the hierarchical all-reduce ------------------------------------------------------------


def _judge_hierarchical(steps: Any, ranks: int, node_size: int) -> str | None:
    """What is wrong with ``steps`` as a hierarchical all-reduce, or None."""
    try:
        schedule = Schedule("your schedule", "all_reduce", ranks, ranks, steps)
    except TypeError as error:
        return (
            f"{sentence(str(error))} Hand on the steps of the pieces as they are, with yield from."
        )
    except ValueError as error:
        return (
            f"{sentence(str(error))} Check which number is the nodes and which the ranks of a "
            "node, and which piece gets which."
        )
    if not checker.check(schedule).ok:
        if any(
            isinstance(step, list) and len(step) > 1 and np.ndim(getattr(step[0], "source", 0))
            for step in steps
        ):
            return (
                "All the steps of a piece have become a single one. A piece is many steps: hand "
                "on each with yield from."
            )
        return _missing_piece(schedule, node_size)
    payload = 1000 * ranks
    network = Network.of_nodes(node_size, **RATES, **NO_LATENCY)
    sent = checker.count_bytes_by_tier(schedule, network, payload)
    due = sent_by_tier("hierarchical", payload, ranks, node_size)
    if sent["across"].max() > due.across * 1.001:
        return (
            f"The sums are right, but a rank sends {sent['across'].max() / payload:.3g} S to other "
            "nodes. "
            "Only a share has to leave: reduce inside before anything does, and let nothing leave "
            "twice."
        )
    if sent["inside"].max() > due.inside * 1.001:
        return (
            f"The sums are right, but a rank sends {sent['inside'].max() / payload:.3g} S inside "
            "its node: "
            "more than is needed."
        )
    return None


def _missing_piece(schedule: Schedule, node_size: int) -> str:
    """The mistake behind wrong sums."""
    if not schedule.steps:
        return "It has no steps. Does the function yield from its pieces?"
    *_, end = contributions(schedule)
    per_node = end.reshape(*end.shape[:2], -1, node_size)
    own = np.arange(schedule.ranks) // node_size
    if (end > 1).any():
        return (
            "Some contributions are counted twice: a sum that is complete inside is to be "
            "copied there, and not added again."
        )
    elsewhere = per_node.sum(axis=(1, 3))
    elsewhere[np.arange(schedule.ranks), own] = 0
    if not elsewhere.any():
        return "No rank has anything from another node: something has to run across."
    if not (end == 1).all(axis=2).any():
        return (
            "No chunk has the contributions of all ranks anywhere. Sum inside before you sum "
            "across, and do sum across."
        )
    whole = (
        (end == 1).all(axis=2).reshape(-1, node_size, end.shape[1]).any(axis=1)
    )  # by node and chunk: some rank has the sum
    if not whole.all():
        return (
            "The sum of a chunk is in some nodes only: each has to end with all of it. What runs "
            "across keeps a part from "
            "the others."
        )
    return (
        "Each node has all of the sum, but each rank only a share: one piece is still to run "
        "inside."
    )


check_hierarchical = define(
    "hierarchy-write",
    chapter="hierarchy",
    title="Write the hierarchical all-reduce",
    kind="implement",
    minutes=10,
    points=3,
    task="Write hierarchical(ranks, node_size): yield from the pieces inside(steps, nodes, "
    "node_size) and across(steps, nodes, node_size), each given the steps of a ring on as many "
    "ranks as it has. Judged by the sums and by the bytes of each tier.",
    check=FunctionCheck(
        lambda ranks, node_size: list(
            make("all_reduce", "hierarchical", ranks, node_size=node_size).steps
        ),
        cases=((8, 4), (8, 2), (6, 3), (16, 4), (4, 1), (4, 4)),
        judge=_judge_hierarchical,
        explanation="Right sums, with a share of the payload on the slow tier.",
    ),
)


Log = list[tuple[int, int, int]]


def _most(shares: Iterable[tuple[int, int]]) -> int:
    """The largest sum of sizes that belong together, of (to whom it belongs, size)."""
    sums: dict[int, int] = {}
    for whose, size in shares:
        sums[whose] = sums.get(whose, 0) + size
    return max(sums.values(), default=0)


def _crossing(events: Log, node_size: int) -> Log:
    return [(a, b, size) for a, b, size in events if a // node_size != b // node_size]


def _sent_across(events: Log, node_size: int) -> int:
    """The most bytes that one rank sends to other nodes."""
    return _most((a, size) for a, _, size in _crossing(events, node_size))


# Every mistake below makes another number of it.
LOG = [
    (0, 1, 40),
    (3, 4, 300),
    (4, 3, 10),
    (3, 4, 250),
    (7, 0, 60),
    (1, 2, 700),
    (1, 6, 30),
    (1, 5, 45),
    (0, 4, 5),
    (5, 6, 90),
    (3, 7, 20),
    (6, 2, 310),
    (6, 1, 200),
]

check_across = define(
    "hierarchy-count",
    chapter="hierarchy",
    title="Count what leaves",
    kind="implement",
    minutes=8,
    points=2,
    task="Write busiest_across(events, node_size): the most bytes that any one rank sends to ranks "
    "of other nodes. events is a list of (source, destination, bytes); a node is node_size "
    "consecutive ranks.",
    check=FunctionCheck(
        _sent_across,
        cases=(
            (LOG, 4),
            (LOG, 2),
            (LOG, 8),
            ([(5, 2, 90), (0, 4, 10), (2, 5, 30)], 2),
            ([], 4),
            ([(0, 1, 7)], 1),
        ),
        hints=(
            (
                lambda events, node_size: sum(size for *_, size in _crossing(events, node_size)),
                "That is what all ranks send across together. Which one sends most?",
            ),
            (
                lambda events, node_size: max(
                    (size for *_, size in _crossing(events, node_size)), default=0
                ),
                "That is the largest message. A rank may send several.",
            ),
            (
                lambda events, node_size: _most(
                    (b, size) for _, b, size in _crossing(events, node_size)
                ),
                "That is what one rank receives. Add up by who sends.",
            ),
            (
                lambda events, node_size: _most(
                    (a // node_size, size) for a, _, size in _crossing(events, node_size)
                ),
                "That is what a whole node sends. Add up by rank.",
            ),
            (
                lambda events, node_size: _most(
                    (rank, size) for a, b, size in _crossing(events, node_size) for rank in (a, b)
                ),
                "That adds what a rank sends and what it receives.",
            ),
            (
                lambda events, node_size: _most(
                    (a, size) for a, b, size in events if a // node_size == b // node_size
                ),
                "That is what stays inside.",
            ),
            (
                lambda events, node_size: _most((a, size) for a, _, size in events),
                "That counts every message, also those inside a node.",
            ),
            (
                lambda events, node_size: _most(
                    (a, size) for a, b, size in events if a % node_size != b % node_size
                ),
                "The remainder is a rank's place in its node. Which node is it?",
            ),
            (
                lambda events, node_size: _most(
                    (a, size) for a, b, size in events if abs(a - b) >= node_size
                ),
                "Two ranks may be neighbors and still be in different nodes.",
            ),
        ),
        explanation="A node is the quotient: two ranks share one when they agree in it.",
    ),
)


# --- Choose the node size -------------------------------------------------------------------------

NODE_SIZES = (8, 16, 32, 64)
RANKS = 512
LIMITS_S = {256 * MiB: 2.5e-3, 64 * MiB: 0.65e-3, 1 * MiB: 0.25e-3}


def _nodes_s(payload_bytes: int, node_size: int) -> float:
    network = Network.named(
        RACK.name,
        inside_latency_s=INSIDE_LATENCY_S,
        across_latency_s=ACROSS_LATENCY_S,
        node_size=node_size,
    )
    return hierarchical_cost(payload_bytes, RANKS, network).total_s


def _judge_node_size(size: Any, payload_bytes: int) -> str | None:
    """Why ``size`` is not the smallest node that keeps the limit, or None."""
    if isinstance(size, bool) or not isinstance(size, (int, float)) or size not in NODE_SIZES:
        return f"Return one of the node sizes {', '.join(map(str, NODE_SIZES))}."
    size = int(size)
    seconds, limit_s = _nodes_s(payload_bytes, size), LIMITS_S[payload_bytes]
    if seconds > limit_s:
        return (
            f"With nodes of {size}, {binary(payload_bytes)} takes {duration(seconds)}, and "
            f"{duration(limit_s)} are allowed. A larger node sends less across, and in fewer hops."
        )
    if any(_nodes_s(payload_bytes, less) <= limit_s for less in NODE_SIZES if less < size):
        return (
            f"It takes {duration(seconds)}, well within the limit; but a smaller node keeps it "
            "too, and costs less."
        )
    return None


def _smallest_node(payload_bytes: int) -> int:
    limit_s = LIMITS_S[payload_bytes]
    return next(size for size in NODE_SIZES if _nodes_s(payload_bytes, size) <= limit_s)


check_node_size = define(
    "hierarchy-node-size",
    chapter="hierarchy",
    title="Choose the node size",
    kind="design",
    minutes=8,
    points=2,
    task="512 GPUs in nodes of 8, 16, 32 or 64: 900 GB/s and 1 µs inside, 50 GB/s and 5 µs across, "
    "each way, a card per GPU. Three jobs each have a hierarchical all-reduce with a limit: 256 "
    "MiB in 2.5 ms, 64 MiB in 0.65 ms, 1 MiB in 0.25 ms. Write smallest_node(payload_bytes), the "
    "smallest node size for each.",
    check=FunctionCheck(
        _smallest_node,
        cases=tuple((size,) for size in LIMITS_S),
        judge=_judge_node_size,
        explanation=(
            "What you pay for is the fabric, so the smallest node that does it is the answer."
        ),
    ),
)
