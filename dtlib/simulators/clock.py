"""How long a schedule takes on a described network.

There is no global barrier: a rank starts its next step when its own sends and receives of the last
one are done, and a message starts when both of its ranks are ready for it. Chunks that go from one
rank to the same other one in one step travel as one message. Ports are shared among the messages of
one step.

On a network with ``members`` (``Network.placed``), rank r of the schedule is the member r, and each
message takes the tier of the places of its two members.

Where the latency is spent decides what a slow hop holds up. In the alpha-beta model it is spent in
the ``port``: a message keeps both of its ranks busy from its start to its end. If it is spent on
the ``wire``, a sender goes on as soon as its bytes are out, without waiting for the receiver. A
ring of equal hops takes the same time either way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtlib.arguments import choice, instance, shown, whole_number
from dtlib.network import Network
from dtlib.simulators.schedule import Schedule, Transfer

__all__ = ["LATENCIES", "MOST_TIMES", "Timeline", "has_places", "time_s", "timeline"]

LATENCIES = ("port", "wire")
MOST_TIMES = 2**29  # 4 GiB of them


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each rank is done with each step: ``finish_s`` by [step, rank]. ``total_s`` is when the
    last one is.
    """

    finish_s: np.ndarray

    @property
    def total_s(self) -> float:
        return float(self.finish_s[-1].max()) if len(self.finish_s) else 0.0


def timeline(
    schedule: Schedule, network: Network, payload_bytes: int, *, latency: str = "port"
) -> Timeline:
    """Time every rank through every step of ``schedule`` with a payload of ``payload_bytes``.

    ``latency`` is one of LATENCIES. A chunk of 0 bytes is still a message, and pays its latency.
    There are steps x ranks times to find, at most 2**29.
    """
    instance("schedule", schedule, Schedule, such_as="make('all_reduce', 'ring', 8)")
    has_places(network, schedule.ranks)
    whole_number(
        "steps x ranks of the schedule",
        len(schedule.steps) * schedule.ranks,
        at_least=0,
        at_most=MOST_TIMES,
    )
    choice("latency", latency, LATENCIES)
    sizes = schedule.chunk_sizes(whole_number("payload_bytes", payload_bytes, at_least=0))
    finish = np.zeros((len(schedule.steps), schedule.ranks))
    ready = np.zeros(schedule.ranks)
    for number, step in enumerate(schedule.steps):
        source, destination, message_bytes = _messages(step, sizes, schedule.ranks)
        if latency == "port":
            begin = np.maximum(ready[source], ready[destination])
            sent = arrived = begin + network.durations_s(source, destination, message_bytes)
        else:
            sent = ready[source] + network.transfers_s(source, destination, message_bytes)
            arrived = sent + network.latencies_s(source, destination)
        np.maximum.at(ready, source, sent)
        np.maximum.at(ready, destination, arrived)
        finish[number] = ready
    return Timeline(finish)


def time_s(
    schedule: Schedule, network: Network, payload_bytes: int, *, latency: str = "port"
) -> float:
    """Seconds until the last rank is done.

    >>> from dtlib.simulators.collectives import make
    >>> flat = Network.flat(bandwidth_Bps=1e9, latency_s=0.25)
    >>> time_s(make("all_reduce", "ring", 4), flat, 2 * 10**9)
    4.5
    >>> nodes = Network.of_nodes(
    ...     4, inside_Bps=4e9, across_Bps=1e9, inside_latency_s=0.25, across_latency_s=0.5
    ... )
    >>> one_each = nodes.placed([0, 4])  # one rank of each of two nodes
    >>> time_s(make("all_reduce", "ring", 2), one_each, 2 * 10**9)
    3.0
    """
    return timeline(schedule, network, payload_bytes, latency=latency).total_s


def has_places(network: Network, ranks: int) -> Network:
    """``network``, which must be one, and have a place for each of the ranks."""
    instance("network", network, Network, such_as="Network.flat(50e9, 5e-6)")
    if network.members is not None and len(network.members) != ranks:
        raise ValueError(
            f"network must have a member for each of the {ranks} ranks, got "
            f"{len(network.members)}: {shown(network.members)}"
        )
    return network


def _messages(
    step: Transfer, sizes: np.ndarray, ranks: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The source, destination and bytes of each message: all chunks of a pair of ranks together."""
    pair, message = np.unique(step.source * ranks + step.destination, return_inverse=True)
    return pair // ranks, pair % ranks, np.bincount(message, sizes[step.chunk])
