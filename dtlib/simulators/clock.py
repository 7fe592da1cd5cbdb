"""How long a schedule takes on a described network.

There is no global barrier: a rank starts its next step when its own sends and receives of the last one are done, and
a message starts when both of its ranks are ready for it. Chunks that go from one rank to the same other one in one
step travel as one message. Ports are shared among the messages of one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtlib.arguments import count
from dtlib.simulators.network import Network
from dtlib.simulators.schedule import Schedule, Transfer

__all__ = ["Timeline", "time_s", "timeline"]


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each rank is done with each step: ``finish_s`` by [step, rank]. ``total_s`` is when the last one is."""

    finish_s: np.ndarray

    @property
    def total_s(self) -> float:
        return float(self.finish_s[-1].max()) if len(self.finish_s) else 0.0


def timeline(schedule: Schedule, network: Network, payload_bytes: int) -> Timeline:
    """Time every rank through every step of ``schedule`` with a payload of ``payload_bytes``.

    A chunk of 0 bytes is still a message, and pays its latency.
    """
    sizes = schedule.chunk_sizes(count("payload_bytes", payload_bytes, at_least=0))
    finish = np.zeros((len(schedule.steps), schedule.ranks))
    ready = np.zeros(schedule.ranks)
    for number, step in enumerate(schedule.steps):
        source, destination, message_bytes = _messages(step, sizes, schedule.ranks)
        done = np.maximum(ready[source], ready[destination])
        done += network.durations_s(source, destination, message_bytes)
        np.maximum.at(ready, source, done)
        np.maximum.at(ready, destination, done)
        finish[number] = ready
    return Timeline(finish)


def time_s(schedule: Schedule, network: Network, payload_bytes: int) -> float:
    """Seconds until the last rank is done.

    >>> from dtlib.simulators.collectives import make
    >>> time_s(make("all_reduce", "ring", 4), Network.flat(bandwidth_Bps=1e9, latency_s=0.25), 2 * 10**9)
    4.5
    """
    return timeline(schedule, network, payload_bytes).total_s


def _messages(step: Transfer, sizes: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The source, destination and bytes of each message: all chunks of one pair of ranks together."""
    pair, message = np.unique(step.source * ranks + step.destination, return_inverse=True)
    return pair // ranks, pair % ranks, np.bincount(message, sizes[step.chunk])
